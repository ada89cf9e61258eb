package userspace

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// background serves peers while no caller does. It never competes with a caller
// that drives: it then naps, away from the device, so that arriving frames do
// not wake it, and looks now and then whether callers still drive.
func (p *Poller) background() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	pause := minNap
	for !p.closed.Load() {
		if !p.seat.CompareAndSwap(seatFree, seatBackground) {
			nap(pause)
			pause = min(2*pause, maxNap)
			continue
		}
		if before := p.drives.Load(); before != p.seenDrives {
			// Callers drove since the last look, and probably will again at once.
			p.seenDrives = before
			p.turn(nil)
			p.leave()
			nap(pause)
			pause = min(2*pause, maxNap)
			continue
		}
		pause = minNap
		p.serve()
	}
}

// serve polls until the device has been quiet for a while, and then sleeps in
// the kernel without the seat, so that a caller can take it meanwhile.
func (p *Poller) serve() {
	last := p.Now()
	for p.wanted.Load() == 0 && !p.closed.Load() {
		if worked, _ := p.turn(nil); worked {
			last = p.Now()
			continue
		}
		if p.Now()-last < int64(p.cfg.BackgroundSpin) {
			continue
		}
		p.leave()
		p.sleep()
		if !p.seat.CompareAndSwap(seatFree, seatBackground) {
			return
		}
		last = p.Now() - int64(p.cfg.BackgroundSpin)
	}
	p.leave()
}

// leave frees the seat, and passes it on if a caller parked meanwhile.
func (p *Poller) leave() {
	p.seat.Store(seatFree)
	p.handOver()
}

// nap sleeps on this thread, which the Go scheduler's timers would not.
func nap(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	// An interrupted nap is a shorter one.
	_ = unix.Nanosleep(&t, nil)
}
