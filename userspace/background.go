package userspace

import (
	"time"

	"golang.org/x/sys/unix"
)

// background serves peers while no caller does. It does not compete with callers
// that drive, or call so often that they make progress themselves: it then naps,
// away from the device, so that arriving frames do not wake it, and looks now and
// then whether it is needed.
func (p *Poller) background() {
	defer close(p.done)
	pause := minNap
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for !p.closed.Load() {
		if !p.needed() || !p.seat.CompareAndSwap(seatFree, seatBackground) {
			p.nap(timer, pause)
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

// nap sleeps away from the device: briefly, or for long if the caller in the seat
// sleeps itself and will give notice when it leaves. It is the Go scheduler's
// sleep: a system call that blocks would have the runtime's monitor look for it
// every 20 µs, on a processor that a caller spins on.
func (p *Poller) nap(timer *time.Timer, d time.Duration) {
	p.napping.Store(true) // before the look at callerSlept, or a notice could be missed
	if p.callerSlept.Load() {
		d = longNap
	}
	timer.Reset(d)
	select {
	case <-p.nudged:
	case <-timer.C:
	}
	p.napping.Store(false)
}

// nudge ends a nap of the background goroutine.
func (p *Poller) nudge() {
	if p.napping.Load() {
		select {
		case p.nudged <- struct{}{}:
		default: // a nudge is pending
		}
	}
}

// yield lets another thread that is ready have this core.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
