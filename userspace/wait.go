package userspace

import (
	"context"
	"time"

	"github.com/xdprma/xdprma/internal/engine"
)

// take gives the first n received frames to the engine and sends what follows
// from them, and reports whether cond, if not nil, is met. The caller has the seat.
func (p *Poller) take(n int, cond Condition) (met bool) {
	p.mu.Lock()
	now := p.Now()
	if n > 0 {
		p.calls = 0
	}
	for i := range p.frames[:n] {
		p.eng.Receive(now, p.frames[i].Payload, p.frames[i].Path)
	}
	p.tick(now)
	sent := p.drain()
	rouse := p.waiters != nil && p.wakeMet()
	met = cond != nil && cond.Met()
	p.mu.Unlock()
	if rouse {
		p.dev.Wake()
	}
	if sent {
		p.dev.Transmit()
	}
	if n > 0 {
		p.dev.Release()
	}
	return met
}

// Wait blocks until cond is met, ctx is done or the poller is closed. It sends
// what is ready before it waits.
func (p *Poller) Wait(ctx context.Context, cond Condition) error {
	p.Lock()
	return p.WaitLocked(ctx, cond)
}

// WaitLocked is Wait for a caller that has the lock, which it gives up.
func (p *Poller) WaitLocked(ctx context.Context, cond Condition) error {
	p.tick(p.called.Load())
	met := cond.Met()
	if p.closed.Load() {
		p.mu.Unlock()
		return errClosed
	}
	p.inside.Add(1)
	defer p.inside.Add(-1)
	sent := p.drain()
	rouse := p.waiters != nil && p.wakeMet()
	turn := p.countCall()
	p.mu.Unlock()
	if rouse {
		p.dev.Wake()
	}
	if sent {
		p.dev.Transmit()
	}
	switch {
	case !met:
		return p.wait(ctx, cond)
	case turn:
		p.turn()
	}
	return nil
}

func (p *Poller) wait(ctx context.Context, cond Condition) error {
	met := false
	patience := p.cfg.CallerSpin // with the background goroutine
	for !met {
		if p.closed.Load() {
			return errClosed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		switch {
		case p.seat.CompareAndSwap(seatFree, seatCaller):
			met = p.drive(ctx, cond)
			p.leave()
			if p.callerSlept.Load() && p.callerSlept.Swap(false) {
				p.nudge()
			}
		case p.seat.Load() == seatBackground && patience > 0:
			patience -= p.claim(patience)
		default:
			met = p.park(ctx, cond)
		}
	}
	return nil
}

// claim waits for the background goroutine to leave the seat, which it does as soon
// as it sees that a caller wants to drive, and returns how long that took.
func (p *Poller) claim(limit time.Duration) time.Duration {
	p.wanted.Add(1)
	defer p.wanted.Add(-1)
	begin := p.Now()
	for {
		waited := time.Duration(p.Now() - begin)
		if p.seat.Load() != seatBackground || waited >= limit {
			return max(waited, 1)
		}
	}
}

// drive polls until cond is met (true), or ctx is done or the poller is closed.
func (p *Poller) drive(ctx context.Context, cond Condition) bool {
	last := p.called.Load()
	for polls := 1; ; polls++ {
		look := polls%pollsALook == 0
		if look && (p.closed.Load() || ctx.Err() != nil) { // however many frames there are
			return false
		}
		if n := p.dev.Receive(p.frames[:]); n > 0 {
			if p.take(n, cond) {
				return true
			}
			last = p.Now()
			continue
		}
		if !look {
			continue
		}
		now := p.Now()
		if now >= p.deadline.Load() {
			if p.take(0, cond) {
				return true
			}
		} else {
			p.dev.Transmit() // what the kernel has not taken before
		}
		switch quiet := time.Duration(now - last); {
		case quiet < tightSpin:
		case quiet < p.cfg.CallerSpin:
			yield()
		default:
			p.callerSlept.Store(true)
			if p.sleepFor(cond) {
				return true
			}
			last = p.Now() - int64(p.cfg.CallerSpin) + int64(p.cfg.BackgroundSpin)
		}
	}
}

// sleepFor sleeps in the kernel until something arrives or is due, and reports
// whether cond is met. Others may meet cond without a frame, so it is registered.
func (p *Poller) sleepFor(cond Condition) bool {
	p.mu.Lock()
	if cond.Met() {
		p.mu.Unlock()
		return true
	}
	w := p.newWaiter(cond)
	w.asleep = true
	p.mu.Unlock()
	p.sleep()
	p.mu.Lock()
	p.recycle(w)
	met := cond.Met()
	p.mu.Unlock()
	return met
}

// sleep sleeps on the device, where there is room for one. The background goroutine
// sleeps without the seat: a driver that finds it there wakes it, so that it goes
// to nap elsewhere, and looks at the device once more before it tries again.
func (p *Poller) sleep() {
	if !p.inBed.CompareAndSwap(false, true) {
		p.dev.Wake()
		return
	}
	defer p.inBed.Store(false)
	d := p.cfg.MaxSleep
	if until := p.deadline.Load(); until != engine.Never {
		d = min(d, time.Duration(until-p.Now()))
	}
	if d > 0 {
		p.dev.Sleep(d)
	}
}

func (p *Poller) newWaiter(cond Condition) *waiter {
	w := p.free
	if w == nil {
		w = &waiter{wake: make(chan struct{}, 1)}
	} else {
		p.free = w.next
	}
	w.cond, w.next, w.asleep = cond, p.waiters, false
	p.waiters = w
	return w
}

func (p *Poller) recycle(w *waiter) {
	p.unlink(w)
	select { // a signal that came too late
	case <-w.wake:
	default:
	}
	w.cond, w.next = nil, p.free
	p.free = w
}

// park blocks without driving until cond is met, or the caller should look
// again: the driver has left, ctx is done, or the poller is closed.
func (p *Poller) park(ctx context.Context, cond Condition) bool {
	p.mu.Lock()
	if cond.Met() {
		p.mu.Unlock()
		return true
	}
	w := p.newWaiter(cond)
	p.parked.Add(1) // before the look at the seat: whoever leaves it looks here afterwards
	defer p.parked.Add(-1)
	p.mu.Unlock()
	p.wanted.Add(1)
	defer p.wanted.Add(-1)
	// The driver may have left before it could see this waiter.
	if p.seat.Load() != seatFree && !p.closed.Load() {
		select {
		case <-w.wake:
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	p.recycle(w)
	met := cond.Met()
	p.mu.Unlock()
	if (met || ctx.Err() != nil) && p.seat.Load() == seatFree {
		p.offer() // this caller may have been woken to drive, and will not
	}
	return met
}

// leave frees the seat, and passes it on if a caller is parked.
func (p *Poller) leave() {
	p.seat.Store(seatFree)
	p.offer()
}

// offer wakes a parked caller, if there is one, to take the free seat. Whoever is
// woken takes it, finds that another one has, or offers it to the next.
func (p *Poller) offer() {
	if p.parked.Load() == 0 {
		return
	}
	p.mu.Lock()
	for w := p.waiters; w != nil; w = w.next {
		if !w.asleep {
			w.signal()
			break
		}
	}
	p.mu.Unlock()
}
