package device

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/device/seat"
	"github.com/xdprma/xdprma/stats"
)

// sleeper is what Sleep and Wake of a device over descriptors share. Wake makes
// a system call only if somebody sleeps.
type sleeper struct {
	event int           // an eventfd
	polls []unix.PollFd // the eventfd, then the device's descriptors
	ready int           // how many of polls are
	state atomic.Uint32 // a seat.Rest

	gate gate               // to polls
	look func(uintptr) bool // sets ready, and reports whether it is not 0

	sleeps, wakeups atomic.Uint64
}

// longSleep is the shortest sleep by the gate, which wakes up later than a thread that blocks, and
// has no shorter times.
const longSleep = time.Millisecond

// open prepares waiting for fds, which stay the caller's.
func (s *sleeper) open(fds ...int) error {
	event, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make an eventfd: %w: raise the limit on open files (ulimit -n)", err)
	}
	s.event = event
	s.polls = append(s.polls, unix.PollFd{Fd: int32(event), Events: unix.POLLIN})
	for _, fd := range fds {
		s.polls = append(s.polls, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	s.look = func(uintptr) bool {
		s.ready = pollNow(s.polls)
		return s.ready > 0
	}
	_ = s.gate.open(s.polls) // where something forbids it, all sleeps go by ppoll
	return nil
}

// sleep blocks until one of the descriptors can be read, or the last one has one of events;
// or until wake is called, or d has passed. It returns the number of descriptors that are
// ready, the eventfd included.
func (s *sleeper) sleep(d time.Duration, events int16) int {
	if d <= 0 || !s.tell(seat.Rest.LiesDown) {
		return 0
	}
	s.sleeps.Add(1)
	s.polls[len(s.polls)-1].Events, s.ready = events, 0
	if d < longSleep || events != unix.POLLIN || !s.gate.wait(d, s.look) {
		timeout, err := unix.NsecToTimespec(int64(d)), error(unix.EINTR)
		for err == unix.EINTR { // by a signal of the runtime; the kernel leaves in timeout what remains
			s.ready, err = unix.Ppoll(s.polls, &timeout, nil)
		}
		s.ready = max(s.ready, 0) // nothing else can be wrong with these arguments
	}
	s.state.Store(uint32(seat.Awake))
	if s.ready > 0 && s.polls[0].Revents != 0 {
		var count [8]byte
		_, _ = unix.Read(s.event, count[:]) // resets it; it cannot fail when readable
	}
	return s.ready
}

// wake implements Device.Wake.
func (s *sleeper) wake() {
	if !s.tell(seat.Rest.Wakes) {
		return
	}
	s.wakeups.Add(1)
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(s.event, one[:]) // fails only when the count is at its limit, and then it is readable
}

// tell lets a sleeper or a waker change the state by does, and returns its answer.
func (s *sleeper) tell(does func(seat.Rest) (seat.Rest, bool)) bool {
	for {
		old := seat.Rest(s.state.Load())
		next, follows := does(old)
		if next == old || s.state.CompareAndSwap(uint32(old), uint32(next)) {
			return follows
		}
	}
}

func (s *sleeper) addStats(to *stats.Device) {
	to.Sleeps += s.sleeps.Load()
	to.Wakeups += s.wakeups.Load()
}

func (s *sleeper) close() error {
	if len(s.polls) == 0 {
		return nil
	}
	s.polls = nil
	return errors.Join(s.gate.close(), unix.Close(s.event))
}
