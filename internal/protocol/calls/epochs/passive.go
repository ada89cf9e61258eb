package epochs

import (
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// Lock begins an access epoch on one target. It waits until the locks that were asked for
// before are granted, except those that other calls wait for. Where this process can load
// and store the target's memory, it then waits for the lock. Elsewhere it waits for no more
// than room to ask for the lock, and the next operations travel with the request. If it
// fails or is given up, no epoch is open.
func (w *Window) Lock(kind window.LockType, target int, how window.Assert) Call {
	return Call{w: w, name: "lock", kind: lock, one: true, target: target, locks: kind, how: how}
}

func (c *Call) stepLock(t Turn) Status {
	w := c.w
	if c.stage == starting {
		if err := w.epoch.Lock(c.target, c.locks, c.how); err != nil {
			return c.end(err)
		}
		if c.how&window.ModeNoCheck != 0 {
			return Over
		}
		c.stage = asking
		t.BeginLock()
	}
	a := w.access(t, c.target)
	if c.stage == asking {
		if order := (*onesided.LockOrderWait)(t); !order.Met() {
			return c.await(order)
		}
		if !t.Lock(a, c.locks == window.LockExclusive) {
			return c.await((*onesided.RoomWait)(a))
		}
		if !w.Loads(c.target) {
			return Over
		}
		c.stage = awaiting
	}
	switch until := (*onesided.LockWait)(a); {
	case a.Held():
		return Over
	case !until.Met():
		t.Flush(a)
		return c.await(until)
	}
	return c.failLock(t, refused(c.name, c.target, a))
}

// refused returns why a lock that was asked for is neither held nor waited for.
func refused(op string, rank int, a *onesided.Access) error {
	if err := failure(op, rank, a); err != nil {
		return err
	}
	return mpierr.New(op, mpierr.RMASync, rank, "refused by the target") // another call was told why
}

// failLock ends a Lock that opens no epoch.
func (c *Call) failLock(t Turn, err error) Status {
	if a := c.w.targets[c.target].access; a != nil {
		t.Leave(a)
	}
	_ = c.w.epoch.Unlock(c.target)
	return c.end(named(c.name, c.target, err))
}

// LockAll begins an access epoch on all targets with shared locks. It waits as Lock does,
// for the locks of targets whose memory this process can load and store. The first operation at
// another target asks for its lock. If it fails or is given up, no epoch is open.
func (w *Window) LockAll(how window.Assert) Call {
	return Call{w: w, name: "lock_all", kind: lockAll, one: true, how: how}
}

func (c *Call) stepLockAll(t Turn) Status {
	w := c.w
	if c.stage == starting {
		if err := w.epoch.LockAll(c.how); err != nil {
			return c.end(err)
		}
		w.began = t.Time()
		if c.how&window.ModeNoCheck != 0 {
			return Over
		}
		c.stage = asking
		t.BeginLock()
	}
	for ; c.target < len(w.targets); c.target++ {
		if !w.Loads(c.target) {
			continue
		}
		a := w.access(t, c.target)
		if c.stage == asking {
			if order := (*onesided.LockOrderWait)(t); !order.Met() {
				return c.await(order)
			}
			if !t.LockPassing(a, w.began) {
				return c.await((*onesided.RoomWait)(a))
			}
			c.stage = awaiting
		}
		if until := (*onesided.LockWait)(a); !until.Met() {
			t.Flush(a)
			return c.await(until)
		}
		if a.Held() {
			w.targets[c.target].lazy, w.targets[c.target].used = true, true
		} else if err := refused(c.name, c.target, a); mpierr.ClassOf(err) != mpierr.ProcFailed || c.target == w.Rank {
			return c.failLockAll(t, err)
		} // else what is issued there will say that it is dead
		c.stage = asking
	}
	return Over
}

// failLockAll ends a LockAll that opens no epoch.
func (c *Call) failLockAll(t Turn, err error) Status {
	for r := range c.w.targets {
		x := &c.w.targets[r]
		if x.access != nil && (x.lazy || r == c.target) {
			t.Leave(x.access)
		}
		x.lazy, x.used = false, false
	}
	_ = c.w.epoch.UnlockAll()
	return c.end(named(c.name, mpierr.NoRank, err))
}

// Unlock ends the epoch that Lock began. Everything issued in it has completed then, and
// the lock is released. Given up, it may have released the lock already; it is to be called
// again, and nothing else can be issued to the target until then.
func (w *Window) Unlock(target int) Call {
	return Call{w: w, name: "unlock", kind: unlock, one: true, target: target}
}

// UnlockAll ends the epoch that LockAll began, as Unlock does, at all targets that were
// accessed.
func (w *Window) UnlockAll() Call { return Call{w: w, name: "unlock_all", kind: unlock} }

func (c *Call) stepUnlock(t Turn) Status {
	w := c.w
	if c.stage == starting {
		if err := c.checkUnlock(); err != nil {
			return c.end(err)
		}
		c.begin(asking)
	}
	for c.stage == asking { // all are asked before any is waited for
		_, x, more := c.each()
		if !more {
			c.begin(awaiting)
			break
		}
		x.releasing = true // even if the call is given up before the target has been asked
		switch {
		case c.how&window.ModeNoCheck != 0:
			t.Flush(x.access)
		case !x.asked:
			if x.asked = t.Unlock(x.access); !x.asked {
				return c.await((*onesided.ReleaseWait)(x.access))
			}
		}
		c.next++
	}
	for _, x, more := c.each(); more; _, x, more = c.each() {
		if until := (*onesided.UnlockWait)(x.access); !until.Met() {
			return c.await(until)
		}
		c.next++
	}
	c.next = 0
	for rank, x, more := c.each(); more; rank, x, more = c.each() {
		x.releasing, x.asked, x.lazy, x.used = false, false, false, false
		x.access.Unlocked()
		c.fail(failure(c.name, rank, x.access))
		c.next++
	}
	if c.one {
		return c.end(w.epoch.Unlock(c.target))
	}
	return c.end(w.epoch.UnlockAll())
}

// checkUnlock refuses an unlock that is out of order, and finds out whom it concerns.
func (c *Call) checkUnlock() error {
	w := c.w
	if c.one {
		if err := w.epoch.CheckUnlock(c.target); err != nil {
			return err
		}
		_, c.how, _ = w.epoch.Locked(c.target)
		return nil
	}
	var locked bool
	if c.how, locked = w.epoch.LockedAll(); !locked {
		return w.epoch.UnlockAll() // which says why not
	}
	c.ranks = w.touched
	return nil
}

// NoTarget is the target of a flush that has nothing to do: the null process.
const NoTarget = -2

// Flush completes what was issued to a target, as far as done says, and returns the first
// error there. Given up, it changes nothing: the operations stay outstanding.
func (w *Window) Flush(name string, target int, done Completion) Call {
	return Call{w: w, name: name, kind: flush, one: true, target: target, done: done}
}

// FlushRanks is Flush for several targets at once, each of which may be named more than once. All
// are asked before any is waited for.
func (w *Window) FlushRanks(name string, targets []int, done Completion) Call {
	c := Call{w: w, name: name, kind: flush, listed: true, done: done}
	many := len(targets) > len(c.few)
	if many {
		c.ranks = make([]int, 0, len(targets))
	}
	for _, rank := range targets {
		switch {
		case rank == NoTarget:
		case many:
			c.ranks = append(c.ranks, rank)
		default:
			c.few[c.n] = rank
			c.n++
		}
	}
	return c
}

// FlushAll is Flush for all targets.
func (w *Window) FlushAll(name string, done Completion) Call {
	return Call{w: w, name: name, kind: flush, done: done}
}

func (c *Call) stepFlush(t Turn) Status {
	if c.stage == starting {
		if err := c.checkFlush(); err != nil {
			return c.end(err)
		}
		if c.target == NoTarget {
			return Over
		}
		if !c.one {
			c.askAll(t)
		}
	}
	if c.one {
		return c.flushOne(t)
	}
	return c.awaitAll()
}

// flushOne is askAll and awaitAll for the only target of a call.
func (c *Call) flushOne(t Turn) Status {
	a := c.w.targets[c.target].access
	if a == nil {
		return Over
	}
	if c.stage == starting {
		c.begin(awaiting)
		c.done.ask(t, a)
	}
	if until := c.done.until(a); !until.Met() {
		return c.await(until)
	}
	return c.end(failure(c.name, c.target, a))
}

func (c *Call) checkFlush() error {
	switch {
	case c.one && c.target != NoTarget:
		return named(c.name, c.target, c.w.epoch.Flush(c.target))
	case c.listed:
		c.opened = len(c.w.touched)
		for i := range c.count() {
			if err := c.w.epoch.Flush(c.at(i)); err != nil {
				return named(c.name, c.at(i), err)
			}
		}
	default:
		c.ranks = c.w.touched
	}
	return named(c.name, mpierr.NoRank, c.w.epoch.FlushAll())
}

// askAll asks for the completion of what was issued to the call's targets.
func (c *Call) askAll(t Turn) {
	c.begin(asking)
	for _, x, more := c.each(); more; _, x, more = c.each() {
		c.done.ask(t, x.access)
		c.next++
	}
	c.begin(awaiting)
}

// awaitAll waits for that, and notes the first error.
func (c *Call) awaitAll() Status {
	for rank, x, more := c.each(); more; rank, x, more = c.each() {
		if until := c.done.until(x.access); !until.Met() {
			return c.await(until)
		}
		c.fail(failure(c.name, rank, x.access))
		c.next++
	}
	return Over
}
