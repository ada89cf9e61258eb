package poller

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/device/seat"
)

// background serves peers while no caller does. It does not compete with callers that
// drive, or call so often that they make progress themselves. While there are such
// callers it naps away from the device, so that arriving frames do not wake it, and
// looks now and then whether it is needed: rarely, as each look takes some ten microseconds
// of a processor from a caller that spins there.
func (p *Poller) background() {
	defer close(p.done)
	pause, calm := minNap, p.cfg.MaxSleep
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for order := p.look(); order != seat.Done; {
		switch order {
		case seat.Drive:
			var served bool
			if served, order = p.serve(); served {
				pause, calm = minNap, p.cfg.MaxSleep
			}
			continue
		case seat.Sleep:
			p.sleep(calm)
			calm = max(calm, p.cfg.LongSleep)
		case seat.Nap:
			p.nap(timer, pause)
			pause = nextNap(pause, p.cfg.MaxSleep)
		case seat.LongNap:
			p.nap(timer, longNap)
		}
		order = p.look()
	}
}

// nextNap returns how long the next nap is. Nobody serves peers until its end, once callers have what they
// wait for.
func nextNap(pause, most time.Duration) time.Duration { return min(2*pause, most) }

// look asks whether the background goroutine is needed. It is not while callers make
// progress, or are about to.
func (p *Poller) look() seat.Order {
	if p.Now()-p.called.Load() < int64(callGap) {
		return p.tell(seat.LooksBusy)
	}
	return p.tell(seat.LooksCalm)
}

// serve polls until a caller wants the seat, or the device has been quiet for a while.
// It reports whether there was anything to serve, and what is next.
func (p *Poller) serve() (served bool, next seat.Order) {
	last := p.Now() - int64(p.wakes)
	for !p.state().Wanted() {
		now := p.Now()
		switch n := p.dev.Receive(p.frames[:]); {
		case n > 0 || now >= p.deadline.Load():
			p.take(n, nil)
			if n > 0 {
				served, last = true, now
			}
		case now-last >= int64(p.wakes):
			p.dev.Transmit() // what the kernel has not taken before
			return served, p.tell(seat.Quiets)
		}
	}
	return served, p.tell(seat.Yields)
}

// nap sleeps away from the device. It is the Go scheduler's sleep: a system call that
// blocks would have the runtime's monitor look for it every 20 µs, on a processor that a
// caller spins on.
func (p *Poller) nap(timer *time.Timer, d time.Duration) {
	timer.Reset(d)
	select {
	case <-p.nudged:
	case <-timer.C:
	}
}

// yield lets another thread that is ready have this core.
func yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
