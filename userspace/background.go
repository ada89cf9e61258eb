package userspace

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// background serves peers while no caller does. It does not compete with callers
// that drive, or call so often that they make progress themselves: it then naps,
// away from the device, so that arriving frames do not wake it, and looks now and
// then whether it is needed.
func (p *Poller) background() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	pause := minNap
	for !p.closed.Load() {
		if !p.needed() || !p.seat.CompareAndSwap(seatFree, seatBackground) {
			p.nap(pause)
			pause = min(2*pause, maxNap)
			continue
		}
		if p.serve() {
			pause = minNap
		}
	}
}

// needed reports whether no caller makes progress, or is about to.
func (p *Poller) needed() bool {
	return p.inside.Load() == 0 && p.Now()-p.called.Load() >= int64(callGap)
}

// serve polls until the device has been quiet for a while, and then sleeps in
// the kernel without the seat, so that a caller can take it meanwhile. It returns
// when callers make progress, and reports whether there was anything to serve.
func (p *Poller) serve() (served bool) {
	last := p.Now() - int64(p.cfg.BackgroundSpin)
	for p.wanted.Load() == 0 && !p.closed.Load() {
		now := p.Now()
		switch n := p.dev.Receive(p.frames[:]); {
		case n > 0 || now >= p.deadline.Load():
			p.take(n, nil)
			if n > 0 {
				served, last = true, now
			}
			continue
		case now-last < int64(p.cfg.BackgroundSpin):
			continue
		}
		p.dev.Transmit() // what the kernel has not taken before
		p.leave()
		p.sleep()
		if !p.needed() || !p.seat.CompareAndSwap(seatFree, seatBackground) {
			return served
		}
		last = p.Now() - int64(p.cfg.BackgroundSpin)
	}
	p.leave()
	return served
}

// nap sleeps on this thread, away from the device: briefly, or for long if the
// caller in the seat sleeps itself and will give notice when it leaves.
func (p *Poller) nap(d time.Duration) {
	p.napping.Store(true) // before the look at callerSlept, or a notice could be missed
	if p.callerSlept.Load() {
		d = longNap
	}
	fds := [1]unix.PollFd{{Fd: int32(p.nudged), Events: unix.POLLIN}}
	t := unix.NsecToTimespec(int64(d))
	// An interrupted nap is a shorter one.
	if n, _ := unix.Ppoll(fds[:], &t, nil); n > 0 {
		var b [8]byte
		_, _ = unix.Read(p.nudged, b[:])
	}
	p.napping.Store(false)
}

// nudge ends a nap of the background thread.
func (p *Poller) nudge() {
	if p.napping.Load() {
		one := [8]byte{1}
		_, _ = unix.Write(p.nudged, one[:]) // it fails only if a nudge is pending
	}
}

// newNudge returns an eventfd, or -1 where the process has no descriptor left:
// naps then run their full, short time.
func newNudge() int {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1
	}
	return fd
}

func closeNudge(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}

// yield lets another thread that is ready have this core.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
