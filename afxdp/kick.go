package afxdp

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// KickResult says what became of the published frames.
type KickResult uint8

const (
	// KickDone: the kernel has everything, or another goroutine's Kick is at it.
	KickDone KickResult = iota
	// KickAgain: more is to be sent. Reap and kick again.
	KickAgain
	// KickLater: the kernel cannot send now, because it is short of memory or the
	// interface is down. Kick again after a pause.
	KickLater
	// KickFailed: the socket cannot send any more; the error says why.
	KickFailed
)

// maxKicks bounds the system calls of one Kick.
const maxKicks = 4

// kernelTxBudget is how many descriptors a kernel sends per call in copy mode
// unless told otherwise.
const kernelTxBudget = 32

// kicker hands the transmit ring to the kernel. It holds no lock: a goroutine
// that finds another one at it leaves the work to that one.
type kicker struct {
	t        *transmitter
	hinted   bool                  // the kernel says in the ring's flags when it needs a call
	fd       int                   // of the socket
	fake     func() unix.Errno     // in place of sendto on the socket; of tests
	state    atomic.Uint64         // the index up to which the kernel has taken the ring, and busy
	failure  atomic.Pointer[error] // sticky
	calls    atomic.Uint64
	lost     atomic.Uint64
	failures atomic.Uint64
}

// busy in the kicker's state says that a goroutine is in kick.
const busy = 1 << 32

func newKicker(t *transmitter, hinted bool, fd int) *kicker {
	k := &kicker{t: t, hinted: hinted, fd: fd}
	k.state.Store(uint64(t.published()))
	return k
}

// pending reports whether a system call is needed. A driver that gives hints may stop
// early at any time, so it needs a call as long as frames have not completed. Otherwise
// the kernel sends nothing outside a call.
func (k *kicker) pending() bool {
	published := k.t.published()
	if k.hinted {
		return published != k.t.completed.Load() && k.t.tx.wantsWakeup()
	}
	return published != uint32(k.state.Load())
}

// kick implements Socket.Kick. It is one function down to the system call: a processor
// mispredicts all returns from calls that were made before one.
func (k *kicker) kick() (KickResult, error) {
	if !k.pending() {
		return KickDone, nil
	}
	for range maxKicks {
		if err := k.err(); err != nil {
			return KickFailed, err
		}
		state := k.state.Load()
		if state&busy != 0 || !k.state.CompareAndSwap(state, state|busy) {
			return KickDone, nil
		}
		published := k.t.published()
		var errno unix.Errno
		if k.fake == nil {
			errno = sendTo(k.fd)
		} else {
			errno = k.fake()
		}
		v := verdict(errno)
		if v == sendDone {
			state = uint64(published)
		}
		k.state.Store(state)
		k.calls.Add(1)
		switch v {
		case sendDone:
			// Whoever published meanwhile may have found busy set: look again.
			if k.t.published() == uint32(k.state.Load()) {
				return KickDone, nil
			}
		case sendRetry:
		case sendLost:
			k.lost.Add(1)
		case sendPause:
			k.failures.Add(1)
			return KickLater, nil
		case sendFatal:
			k.failures.Add(1)
			k.fail(explainSend(errno))
			return KickFailed, k.err()
		}
	}
	return KickAgain, nil
}

// fail makes err the answer to every later Kick; the first one wins.
func (k *kicker) fail(err error) { k.failure.CompareAndSwap(nil, &err) }

// err returns the sticky error, or nil.
func (k *kicker) err() error {
	if err := k.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// sendVerdict is what an errno of sendto means for the transmit ring.
type sendVerdict uint8

const (
	sendDone  sendVerdict = iota // the ring was drained
	sendRetry                    // stopped early, nothing lost
	sendLost                     // one frame was dropped although it completes; the rest is unsent
	sendPause                    // nothing can be sent for now
	sendFatal                    // no later call can succeed
)

func verdict(errno unix.Errno) sendVerdict {
	switch errno {
	case 0:
		return sendDone
	case unix.EAGAIN, unix.EINTR:
		return sendRetry
	case unix.EBUSY:
		return sendLost
	case unix.ENOBUFS, unix.ENOMEM, unix.ENETDOWN: // an interface that is down can come up again
		return sendPause
	}
	return sendFatal
}

// ErrDeviceGone is in the chain of the error that Kick and Wait return once the
// interface was removed.
var ErrDeviceGone = errors.New("the interface was removed")

// explainSend turns a fatal errno of sendto, or the socket's pending error, into
// an error. A pending ENETDOWN is for good.
func explainSend(errno unix.Errno) error {
	switch errno {
	case unix.ENXIO, unix.ENETDOWN, unix.ENODEV:
		return fmt.Errorf("afxdp: transmit: %w (%w)", ErrDeviceGone, errno)
	case unix.EINVAL:
		return fmt.Errorf("afxdp: transmit: the kernel refuses a descriptor: %w", errno)
	}
	return fmt.Errorf("afxdp: transmit: %w", errno)
}
