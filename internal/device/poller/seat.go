package poller

import "github.com/xdprma/xdprma/internal/device/seat"

// state returns what the seat's machine knows.
func (p *Poller) state() seat.State { return seat.State(p.seat.Load()) }

// tell reports an event to the seat's machine, does the favours that it orders, and
// returns the task. Only Enters and Exits may be told with the engine's lock held.
func (p *Poller) tell(e seat.Event) seat.Order {
	for {
		old := p.state()
		next, order := old.On(e)
		if !p.seat.CompareAndSwap(uint64(old), uint64(next)) {
			continue
		}
		if order&seat.Pass != 0 {
			p.offer()
		}
		if order&seat.Nudge != 0 {
			p.nudge()
		}
		return order.Task()
	}
}

// offer wakes a parked caller, to take the free seat.
func (p *Poller) offer() {
	p.mu.Lock()
	for w := p.waiters; w != nil; w = w.next {
		if !w.asleep {
			w.signal()
			break
		}
	}
	p.mu.Unlock()
}

// nudge ends the nap of the background goroutine.
func (p *Poller) nudge() {
	select {
	case p.nudged <- struct{}{}:
	default: // a nudge is pending
	}
}

// waiter is a caller that is parked, or that sleeps on the device.
type waiter struct {
	cond   Condition
	wake   chan struct{} // capacity 1
	asleep bool          // sleeps on the device: Wake reaches it
	since  int64         // when its call began to wait; of parked callers
	next   *waiter
}

// register has a caller woken when cond is met. The engine is locked.
func (p *Poller) register(cond Condition, asleep bool) *waiter {
	w := p.free
	if w == nil {
		w = &waiter{wake: make(chan struct{}, 1)}
	} else {
		p.free = w.next
	}
	w.cond, w.next, w.asleep = cond, p.waiters, asleep
	p.waiters = w
	return w
}

// recycle ends what register began. The engine is locked.
func (p *Poller) recycle(w *waiter) {
	for at := &p.waiters; *at != nil; at = &(*at).next {
		if *at == w {
			*at = w.next
			break
		}
	}
	select { // a signal that came too late
	case <-w.wake:
	default:
	}
	w.cond, w.next = nil, p.free
	p.free = w
}

// wakeMet wakes the parked callers whose condition holds, and reports whether one
// that sleeps on the device is to be woken, once the engine is free again.
func (p *Poller) wakeMet() (rouse bool) {
	for at := &p.waiters; *at != nil; {
		w := *at
		if !w.cond.Met() {
			at = &w.next
			continue
		}
		*at = w.next
		rouse = rouse || w.asleep
		w.signal()
	}
	return rouse
}

// signal wakes w if it is parked.
func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
