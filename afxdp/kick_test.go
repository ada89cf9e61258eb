package afxdp

import (
	"errors"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// script makes a fake sendto answer with errnos in turn, then with 0.
func script(s *Socket, errnos ...unix.Errno) (calls *int) {
	calls = new(int)
	s.kick.fake = func() unix.Errno {
		*calls++
		if *calls <= len(errnos) {
			return errnos[*calls-1]
		}
		return 0
	}
	return calls
}

func TestKickErrnos(t *testing.T) {
	const again, busy, intr = unix.EAGAIN, unix.EBUSY, unix.EINTR
	for _, c := range []struct {
		name   string
		errnos []unix.Errno
		want   KickResult
		calls  int
		lost   uint64
		cause  error
	}{
		{"sent", nil, KickDone, 1, 0, nil},
		{"budget used up once", []unix.Errno{again}, KickDone, 2, 0, nil},
		{"stuck", []unix.Errno{again, again, again, again}, KickAgain, 4, 0, nil},
		{"interrupted", []unix.Errno{intr}, KickDone, 2, 0, nil},
		{"two frames lost", []unix.Errno{busy, busy}, KickDone, 3, 2, nil},
		{"all lost", []unix.Errno{busy, busy, busy, busy}, KickAgain, 4, 4, nil},
		{"no buffers", []unix.Errno{unix.ENOBUFS}, KickLater, 1, 0, nil},
		{"no memory", []unix.Errno{again, unix.ENOMEM}, KickLater, 2, 0, nil},
		{"bad descriptor", []unix.Errno{unix.EINVAL}, KickFailed, 1, 0, unix.EINVAL},
		{"unbound", []unix.Errno{unix.ENXIO}, KickFailed, 1, 0, ErrDeviceGone},
		{"down", []unix.Errno{busy, unix.ENETDOWN}, KickLater, 2, 1, nil},
		{"unknown", []unix.Errno{unix.EBADF}, KickFailed, 1, 0, unix.EBADF},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := newFake(t, small, nearWrap)
			calls := script(s, c.errnos...)
			if r, err := s.Kick(); r != KickDone || err != nil || *calls != 0 {
				t.Fatalf("with nothing to send: %v, %v, %d calls", r, err, *calls)
			}
			s.Enqueue(0, 60)
			if r, _ := s.Kick(); r != KickDone || *calls != 0 {
				t.Fatalf("before publish: %v, %d calls", r, *calls)
			}
			s.Publish()
			r, err := s.Kick()
			if r != c.want || *calls != c.calls || s.kick.lost.Load() != c.lost || !errors.Is(err, c.cause) {
				t.Fatalf("%v, %v, %d calls, %d lost", r, err, *calls, s.kick.lost.Load())
			}
			before := *calls
			r, err = s.Kick()
			switch {
			case c.want == KickDone && *calls != before:
				t.Errorf("%d more calls with everything sent", *calls-before)
			case c.want == KickFailed && (r != KickFailed || !errors.Is(err, c.cause) || *calls != before):
				t.Errorf("the error did not stay: %v, %v", r, err)
			case (c.want == KickAgain || c.want == KickLater) && (r != KickDone || *calls != before+1):
				t.Errorf("second kick: %v, %d more calls", r, *calls-before)
			}
		})
	}
}

// A driver with hints is called only while it asks for it and frames are in flight.
func TestKickWithHints(t *testing.T) {
	s, k := newFake(t, small, 0)
	calls := script(s)
	s.kick.hinted = true
	s.Enqueue(0, 60)
	s.Publish()
	_, _ = s.Kick()
	if *calls != 0 {
		t.Fatal("called a driver that is at work")
	}
	*k.tx.flags = 1
	_, _ = s.Kick()
	_, _ = s.Kick()
	if *calls != 2 {
		t.Fatalf("%d calls, want one a kick while the driver asks", *calls)
	}
	_, addrs := k.transmit()
	k.completion.give(addrs[0])
	s.Reap(make([]uint64, 1))
	_, _ = s.Kick()
	if *calls != 2 {
		t.Fatal("called a driver with nothing in flight")
	}
}

// A frame that is published during the system call, whose Kick finds another one at it, is sent by that one.
func TestKickLooksAgain(t *testing.T) {
	s, _ := newFake(t, small, nearWrap)
	calls := 0
	s.kick.fake = func() unix.Errno {
		if calls++; calls == 1 {
			s.Enqueue(uint64(small.ChunkSize), 60)
			s.Publish()
			if r, err := s.Kick(); r != KickDone || err != nil || calls != 1 {
				t.Errorf("a kick within another one: %v, %v, %d calls", r, err, calls)
			}
		}
		return 0
	}
	s.Enqueue(0, 60)
	s.Publish()
	if r, err := s.Kick(); r != KickDone || err != nil || calls != 2 {
		t.Errorf("%v, %v, %d calls, want 2", r, err, calls)
	}
}

// Kick runs beside Enqueue, Publish, Reap and other Kicks, and forgets no frame.
func TestKickConcurrently(t *testing.T) {
	const total = 20000
	s, k := newFake(t, small, nearWrap)
	// The fake sendto completes all that is published; kick never runs it twice at once.
	s.kick.fake = func() unix.Errno {
		for d, ok := k.tx.take(); ok; d, ok = k.tx.take() {
			k.completion.give(d.addr)
		}
		return 0
	}
	var lock sync.Mutex
	var free []uint64
	for i := range small.TxChunks {
		free = append(free, uint64(i*small.ChunkSize))
	}
	sent, reaped := 0, 0
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			offsets := make([]uint64, 4)
			for turn := 0; turn < 100*total; turn++ {
				lock.Lock()
				n := s.Reap(offsets)
				free = append(free, offsets[:n]...)
				reaped += n
				if reaped == total {
					lock.Unlock()
					return
				}
				if sent < total && len(free) > 0 && s.Enqueue(free[len(free)-1], 60) {
					free = free[:len(free)-1]
					sent++
					s.Publish()
				}
				lock.Unlock()
				if _, err := s.Kick(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if reaped != total {
		t.Errorf("%d of %d frames came back", reaped, total)
	}
}
