package device

import (
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/afxdp"
	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/stats"
)

// XDP is a Device over AF_XDP: one socket for each receive queue, and the
// classifier in front of them. A frame is served by the socket of the queue at
// which the interface put it. The queues share the transmit memory, so a frame
// leaves through the queue of its path whatever its slot.
//
// A path that Path resolved leaves through the queue that the peer's address
// hashes to, a path learned from a handshake through the queue at which the
// handshake arrived. No frame is sent with a VLAN tag. Peers at addresses of this
// machine are reached through the kernel's stack, and so are those whose frames
// come to a queue without a socket; see xdp_stack.go.
type XDP struct {
	base
	log     *slog.Logger
	ifi     *net.Interface
	local   endpoint
	program *loader.Program
	sockets []*afxdp.Socket // by queue; the first owns the memory
	senders int             // how many of the queues, from the first, can send
	routes  *netlink.Handle
	paths   pathTable[xdpPath]

	neighbours *nl.SocketHandle // reads the neighbour table
	patience   time.Duration    // for a neighbour to answer
	stack      stack
	copyFirst  bool     // zero-copy hinders a program that executes requests
	chunk      int      // bytes of a chunk of packet memory
	watch      watch    // looks whether frames come to the sockets at all, and whether the program is there
	presence   presence // of the program on the interface

	// The driver's.
	raw     [batch][]byte
	next    int // queue to receive from first
	held    int // frames that came to the sockets, and are to be released
	answers answers

	detour [batch]Out // scratch, of whoever enqueues

	retry atomic.Bool   // the kernel did not take everything; see Sleep
	idle  time.Duration // of whoever sleeps: how long nothing has come

	rxMalformed atomic.Uint64
}

var _ Device = (*XDP)(nil)

// Enqueue implements Device. It panics for a path that the device did not give
// out and for a slot or length outside the slab.
func (x *XDP) Enqueue(outs []Out) int {
	n := 0
	for n < len(outs) {
		out := outs[n]
		if by := x.byStack(out); by != NoPath {
			took := x.enqueueStack(outs[n:])
			if n += took; took == 0 {
				break
			}
			continue
		}
		checkOut(x.facts.Slab, out)
		p := x.paths.get(out.Path)
		payload := int(out.Slot)*x.facts.Slab.Stride + x.facts.Slab.Headroom
		start, end := payload-int(p.len), payload+int(out.Len)
		p.write(x.facts.Slab.Mem[start:payload:payload], x.facts.Slab.Mem[payload:end])
		if !x.sockets[p.queue].Enqueue(uint64(start), end-start) {
			break
		}
		n++
	}
	if n > 0 {
		for _, s := range x.sockets {
			s.Publish()
		}
	}
	return n
}

// Reap implements Device.
func (x *XDP) Reap(slots []int32) int {
	n := 0
	var offsets [batch]uint64
	for _, s := range x.sockets {
		for n < len(slots) {
			got := s.Reap(offsets[:min(batch, len(slots)-n)])
			if got == 0 {
				break
			}
			for i, offset := range offsets[:got] {
				slots[n+i] = int32(offset / uint64(x.facts.Slab.Stride))
			}
			n += got
		}
	}
	if x.stack.carries() {
		n += x.stack.tx.reap(slots[n:])
	}
	return n
}

// maxKicks bounds the calls that one Transmit makes for one queue.
const maxKicks = 16

// Transmit implements Device. Frames that the kernel does not take even after several
// calls wait for the next Transmit; Sleep is short until then.
func (x *XDP) Transmit() {
	if x.retry.Load() {
		x.retry.Store(false)
	}
	for _, s := range x.sockets {
		result, err := s.Kick()
		for kicks := 1; result == afxdp.KickAgain && kicks < maxKicks; kicks++ {
			result, err = s.Kick()
		}
		switch result {
		case afxdp.KickAgain, afxdp.KickLater:
			x.retry.Store(true)
		case afxdp.KickFailed:
			x.link.lose(err)
		}
	}
	if x.stack.carries() && x.stack.send() {
		x.sleeper.wake()
	}
}

// retryPause is the longest Sleep while the kernel has not taken all frames.
const retryPause = 500 * time.Microsecond

// goneCheck is how long nothing has come when the sockets are asked whether the interface is still
// there. The link usually tells first.
const goneCheck = 100 * time.Millisecond

// Sleep implements Device.
func (x *XDP) Sleep(d time.Duration) {
	if x.retry.Load() {
		d = min(d, retryPause)
	}
	events := int16(unix.POLLIN)
	if x.stack.tx.full.Load() {
		events |= unix.POLLOUT
	}
	if !x.answers.doze() {
		return
	}
	ready := x.sleeper.sleep(d, events)
	x.answers.rise()
	if last := x.sleeper.polls[len(x.sleeper.polls)-1].Revents; ready > 0 && last != 0 {
		if last&unix.POLLIN != 0 {
			x.stack.heard.Store(true)
		}
		if last&unix.POLLERR != 0 {
			x.stack.clearError()
		}
	}
	if ready > 0 {
		x.idle = 0
	} else if x.idle += d; x.idle >= goneCheck {
		x.idle = 0
		x.checkGone()
	}
}

// checkGone asks whether the interface was removed, which shows neither in poll nor, when nothing
// is sent, in Transmit.
func (x *XDP) checkGone() {
	if x.link.lost() {
		return
	}
	if _, err := x.sockets[0].Wait(0, -1); err != nil {
		x.link.lose(err)
	}
}

// mode returns how frames travel: "xdp-native-zerocopy" only if all queues have zero-copy.
func (x *XDP) mode() string {
	if x.program.Mode() != loader.Native {
		return "xdp-generic"
	}
	for _, s := range x.sockets {
		if !s.ZeroCopy() {
			return "xdp-native"
		}
	}
	return "xdp-native-zerocopy"
}

// Stats implements Device. Bytes count whole frames, from the link's header on. Of
// frames that went through the kernel's stack, and of answers that the program handed over, they count the
// UDP payload. RxDropped
// includes handshakes that cannot be answered because the senders of 65536 others are
// remembered. It does not include what a NIC with zero-copy drops for want of chunks: the
// NIC's own counters do.
func (x *XDP) Stats(s *stats.Device) {
	s.RxMalformed += x.rxMalformed.Load()
	s.RxDropped += x.unknownPaths.Load()
	x.sleeper.addStats(s)
	x.stack.addStats(s)
	s.FilterTaken += x.presence.times.Load()
	x.facts.Tier.Stats(s)
	for _, socket := range x.sockets {
		k, err := socket.Stats()
		if err != nil {
			continue // the device was removed
		}
		s.RxFrames += k.RxFrames
		s.RxBytes += k.RxBytes
		s.TxFrames += k.TxFrames
		s.TxBytes += k.TxBytes
		s.RxDropped += k.KernelRxDropped + k.KernelRxRingFull + k.RxOversize
		s.RxMalformed += k.RxInvalid
		s.TxDropped += k.TxLost + k.KernelTxInvalid
		s.TxErrors += k.KickFailures
	}
	if counters, err := x.program.Counters(); err == nil {
		if s.Filter == nil {
			s.Filter = make(map[string]uint64, len(counters))
		}
		for name, n := range counters {
			s.Filter[name] += n
		}
		s.RxFrames += counters[handedOver]
	}
	s.RxBytes += x.answers.bytes.Load()
}

// Close implements Device: it waits for what its tier does in the background, detaches
// the program, closes the sockets, and unmaps the memory last.
func (x *XDP) Close() error {
	x.close.Do(func() {
		x.watch.stop()
		x.facts.Tier.Close()
		errs := []error{x.link.close()}
		if x.program != nil {
			errs = append(errs, x.program.Close())
		}
		for i := len(x.sockets) - 1; i >= 0; i-- { // the first one has the memory
			errs = append(errs, x.sockets[i].Close())
		}
		errs = append(errs, x.sleeper.close(), x.stack.shut())
		if x.routes != nil {
			x.routes.Close()
		}
		if x.neighbours != nil {
			x.neighbours.Close()
		}
		x.presence.close()
		x.err = errors.Join(errs...)
	})
	return x.err
}
