package engine

import (
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/wire"
	"github.com/xdprma/xdprma/window"
)

// localHolder is this rank's own key in its windows' locks; others have the id
// of their session.
const localHolder uint64 = 0

// lockKey names one request for a lock that waits in a window's queue.
type lockKey struct {
	window uint32
	holder uint64
}

// lockWait is what to do when the request is granted: apply a peer's bundle, or
// tell this rank's own access.
type lockWait struct {
	bundle *bundle
	local  *Access
}

// acquire handles a peer's lock record.
func (e *Engine) acquire(s *Session, r *wire.Record) (granted bool, class mpierr.Class) {
	if e.cfg.Windows.Lookup(r.Window) == nil {
		return false, mpierr.Win
	}
	if r.Flags&^wire.FlagExclusive != 0 {
		return false, mpierr.Locktype
	}
	return e.lockOf(r.Window).Acquire(s.localID, kindOf(r.Flags&wire.FlagExclusive != 0), struct{}{})
}

type lock = window.Lock[struct{}]

// lockOf returns the lock of the window with that id.
func (e *Engine) lockOf(id uint32) *lock {
	l := e.locks[id]
	if l == nil {
		l = &lock{}
		e.locks[id] = l
	}
	return l
}

func kindOf(exclusive bool) window.LockType {
	if exclusive {
		return window.LockExclusive
	}
	return window.LockShared
}

// ForgetWindow drops the lock of a window that has been freed. What waits for it
// is refused.
func (e *Engine) ForgetWindow(id uint32) {
	delete(e.locks, id)
	for k, w := range e.waits {
		if k.window != id {
			continue
		}
		delete(e.waits, k)
		if w.bundle != nil {
			e.parked.waiting--
			w.bundle.refuse = mpierr.Win
			w.bundle.at = 0
			w.bundle.lock = lockState{}
			e.parked.list = append(e.parked.list, w.bundle)
			e.parked.n++
		}
	}
}

// enqueue keeps the rest of a bundle until its lock is granted. The bundle no
// longer holds up later ones: it touches only the window whose lock it waits
// for, and its origin issues nothing else there before it has heard of the grant.
func (e *Engine) enqueue(b *bundle) {
	c := e.parked.copyOf(b)
	c.counted = true
	e.parked.waiting++
	e.waits[lockKey{b.lock.window, b.session.localID}] = &lockWait{bundle: c}
}

func (e *Engine) lockLocal(a *Access, exclusive bool) {
	granted, class := e.lockOf(a.window).Acquire(localHolder, kindOf(exclusive), struct{}{})
	switch {
	case class != mpierr.Success:
		a.fail(refusal(wire.CodeLock, class, e.cfg.Rank))
	case granted:
		a.lock = locked
	default:
		a.lock = locking
		e.waits[lockKey{a.window, localHolder}] = &lockWait{local: a}
	}
}

// release gives up holder's lock on a window and lets those waiting have it.
func (e *Engine) release(id uint32, holder uint64) mpierr.Class {
	granted, class := e.lockOf(id).Release(holder, e.granted[:0])
	e.grant(id, granted)
	return class
}

// grant takes those who now hold a lock from its queue. A peer's bundle goes on
// as a parked one, at the end of this call into the engine.
func (e *Engine) grant(id uint32, granted []window.Grant[struct{}]) {
	e.granted = granted
	for _, g := range granted {
		k := lockKey{id, g.Holder}
		w := e.waits[k]
		if w == nil {
			panic("engine: a lock was granted that nobody waits for")
		}
		delete(e.waits, k)
		if w.local != nil {
			w.local.lock = locked
			continue
		}
		e.parked.waiting--
		e.parked.list = append(e.parked.list, w.bundle)
		e.parked.n++
	}
}

// dropLocks releases what a dead peer holds and forgets what it waits for.
func (e *Engine) dropLocks(s *Session) {
	for id, l := range e.locks {
		k := lockKey{id, s.localID}
		if wait := e.waits[k]; wait != nil {
			delete(e.waits, k)
			e.parked.waiting--
			e.parked.recycle(wait.bundle)
		}
		e.grant(id, l.Drop(s.localID, e.granted[:0]))
	}
}
