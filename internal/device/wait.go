package device

import (
	"context"
	"time"

	"github.com/xdprma/xdprma/internal/device/seat"
	"github.com/xdprma/xdprma/internal/protocol/engine"
)

// take gives the first n received frames to the engine and sends what follows
// from them, and reports whether cond, if not nil, is met. The caller has the seat.
func (p *Poller) take(n int, cond Condition) (met bool) {
	p.mu.Lock()
	p.eng.Now = p.Now()
	if n > 0 {
		p.calls = 0
	}
	for i := range p.frames[:n] {
		p.eng.Receive(p.frames[i].Payload, p.frames[i].Path)
	}
	p.tick()
	sent := p.drain()
	if p.waiters != nil {
		p.wakeMet() // nobody sleeps on the device: who does and registers has the seat
	}
	met = cond != nil && cond.Met()
	p.mu.Unlock()
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
	if p.tell(seat.Enters) == seat.Refuse { // before tick, which asks the device
		p.mu.Unlock()
		return errClosed
	}
	p.tick()
	met := cond.Met()
	sent := p.drain()
	rouse := p.waiters != nil && p.wakeMet()
	turn := p.countCall()
	p.mu.Unlock()
	p.handOn(sent, rouse)
	switch {
	case !met:
		return p.obey(ctx, cond)
	case turn:
		p.turn()
	default:
		p.tell(seat.Exits)
	}
	return nil
}

// obey does what the seat's machine orders a caller that waits, until that is done.
func (p *Poller) obey(ctx context.Context, cond Condition) error {
	if err := ctx.Err(); err != nil {
		p.tell(seat.Exits)
		return err
	}
	met, since := false, p.called.Load()
	for order := p.tell(seat.Waits); order != seat.Done; {
		switch order {
		case seat.Drive:
			met = p.drive(ctx, cond, since)
			order = p.tell(seat.Leaves)
		case seat.Claim:
			p.claim()
			order = p.tell(seat.Claimed)
		case seat.Park:
			met, order = p.park(ctx, cond, since)
		}
	}
	switch {
	case met:
		return nil
	case p.Closed():
		return errClosed
	}
	return ctx.Err()
}

// claim waits for the background goroutine to leave the seat, which it does as soon
// as it sees that a caller wants to drive.
func (p *Poller) claim() {
	for begin := p.Now(); p.state().BackgroundDrives() && p.Now()-begin < int64(p.cfg.CallerSpin); {
	}
}

// drive polls until cond is met (true), or ctx is done or the poller is closed.
func (p *Poller) drive(ctx context.Context, cond Condition, since int64) (met bool) {
	slow := false
	met = p.poll(ctx, cond, since, &slow)
	if slow {
		p.setSlow(nil, 0)
	}
	return met
}

// poll is drive. It notes that the caller has waited for a while in slow, and in the poller.
func (p *Poller) poll(ctx context.Context, cond Condition, since int64, slow *bool) bool {
	last := p.called.Load()
	for polls := 1; ; polls++ {
		look := polls%pollsALook == 0
		if look && (p.Closed() || ctx.Err() != nil) { // however many frames there are
			return false
		}
		if n := p.dev.Receive(p.frames[:]); n > 0 {
			if p.take(n, cond) {
				return true
			}
			if last = p.Now(); !*slow && last-since > int64(slowDriver) {
				*slow = true
				p.setSlow(cond, since)
			}
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
			if !*slow && now-since > int64(slowDriver) {
				*slow = true
				p.setSlow(cond, since)
			}
			if p.rest(cond) {
				return true
			}
			last = p.Now() - int64(p.cfg.CallerSpin) + int64(p.cfg.BackgroundSpin)
		}
	}
}

// rest sleeps on the device until something arrives or is due, and reports whether cond
// is met. Others may meet it without a frame, so it is registered. If the background
// goroutine sleeps there, it is woken, so that it goes to nap elsewhere: the caller looks
// at the device once more before it tries again.
func (p *Poller) rest(cond Condition) (met bool) {
	if p.tell(seat.Tires) == seat.Rouse {
		p.dev.Wake()
		p.mu.Lock()
		defer p.mu.Unlock()
		return cond.Met()
	}
	p.mu.Lock()
	if met = cond.Met(); !met {
		w := p.register(cond, true)
		p.mu.Unlock()
		p.sleep()
		p.mu.Lock()
		p.recycle(w)
		met = cond.Met()
	}
	p.mu.Unlock()
	p.tell(seat.Rises)
	return met
}

// sleep sleeps on the device, for somebody who has the bed.
func (p *Poller) sleep() {
	d := p.cfg.MaxSleep
	if until := p.deadline.Load(); until != engine.Never {
		d = min(d, time.Duration(until-p.Now()))
	}
	if d > 0 {
		p.dev.Sleep(d)
	}
}

// park blocks without driving until cond is met, or the caller should look again: the
// driver has left, ctx is done, or the poller is closed. It returns what is next.
func (p *Poller) park(ctx context.Context, cond Condition, since int64) (met bool, next seat.Order) {
	p.mu.Lock()
	if cond.Met() {
		p.mu.Unlock()
		p.tell(seat.Exits)
		return true, seat.Done
	}
	w := p.register(cond, false)
	w.since = since
	p.mu.Unlock()
	if p.tell(seat.Parks) == seat.Block {
		select {
		case <-w.wake:
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	p.recycle(w)
	met = cond.Met()
	p.mu.Unlock()
	if met || ctx.Err() != nil {
		return met, p.tell(seat.Goes)
	}
	return false, p.tell(seat.Unparks)
}
