package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/xdprma/xdprma/internal/link"
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

// queuedRequest is what to do when the request is granted: apply a peer's bundle, or
// tell this rank's own access.
type queuedRequest struct {
	bundle *link.Bundle
	local  *Access
	since  int64
}

// acquire handles a peer's lock record.
func (e *Engine) acquire(s *Session, r *wire.Record) (granted bool, class mpierr.Class) {
	if w, class := e.windowFor(s, r.Window); w == nil {
		return false, class
	}
	ask, ok := r.Lock()
	if !ok {
		return false, mpierr.Locktype
	}
	l := e.lockOf(r.Window)
	if l.exposed {
		return false, mpierr.RMASync
	}
	if granted, class = e.ask(l, s.ID(), &ask); granted {
		l.hold(s)
	}
	return granted, class
}

// lock is a window's lock and the peers that hold it. They are asked for a sign
// of life while somebody waits, so that the lock of one that died is released.
type lock struct {
	window.Lock[struct{}]
	host    *window.Host // nil if no other rank of the host maps the window
	holders []*Session
	exposed bool // by Post, so that it cannot be locked
}

func (l *lock) hold(s *Session) { l.holders = append(l.holders, s) }

// gone forgets the holder whose session has the given id, if it is one.
func (l *lock) gone(id uint64) {
	for i, s := range l.holders {
		if s.ID() == id {
			last := len(l.holders) - 1
			l.holders[i], l.holders[last] = l.holders[last], nil
			l.holders = l.holders[:last]
			return
		}
	}
}

// watchHolders begins to watch those who hold l, for the first request that
// waits; who comes to hold it while others wait is watched from then on.
func (e *Engine) watchHolders(id uint32, l *lock) {
	if l.Waiting() > 1 {
		return
	}
	for _, s := range l.holders {
		e.watchHolder(s)
	}
	if l.host != nil {
		e.watchWord(l)
		e.lookAtWord(id, l)
	}
}

func (e *Engine) watchHolder(s *Session) {
	s.blocks = true
	s.Await()
}

// lockOf returns the lock of the window with that id.
func (e *Engine) lockOf(id uint32) *lock {
	l := e.locks[id]
	if l == nil {
		l = &lock{}
		if w := e.cfg.Windows.Lookup(id); w != nil && w.Host() != nil {
			l.host = w.Host()
			l.Share(l.host.Lock, func(index int) bool { return e.sharer(l.host, index) == nil })
		}
		e.locks[id] = l
	}
	return l
}

// ask asks for l in the name of a holder.
func (e *Engine) ask(l *lock, holder uint64, ask *wire.Lock) (granted bool, class mpierr.Class) {
	if ask.Passing && e.passes(l, ask.Window, ask.Age) {
		return l.Pass(holder, struct{}{})
	}
	return l.Acquire(holder, kindOf(ask.Exclusive), struct{}{})
}

// passes reports whether a request of lock_all goes before those who wait. It has to if
// its epoch is older than one of the waits: the epoch may hold the lock of another target
// that the one who waits here needs. A younger epoch waits its turn, so that nobody
// starves. The age is that at sending. The request may have been under way since, but
// for no longer than DeadAfter: then its session would have ended.
func (e *Engine) passes(l *lock, id uint32, age uint64) bool {
	longest := int64(0)
	l.Waiters(func(holder uint64) {
		if w := e.waits[lockKey{id, holder}]; w != nil {
			longest = max(longest, e.Now-w.since)
		}
	})
	return longest <= e.cfg.DeadAfter || uint64(longest-e.cfg.DeadAfter) < age
}

func kindOf(exclusive bool) window.LockType {
	if exclusive {
		return window.LockExclusive
	}
	return window.LockShared
}

// ForgetWindow drops the lock of a window that has been freed. Requests that wait for it
// are refused.
func (e *Engine) ForgetWindow(id uint32) {
	delete(e.locks, id)
	var keys []lockKey
	for k := range e.waits {
		if k.window == id {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b lockKey) int { return cmp.Compare(a.holder, b.holder) })
	for _, k := range keys {
		w := e.waits[k]
		delete(e.waits, k)
		if w.local != nil {
			err := refusal(wire.CodeLock, mpierr.Win, e.cfg.Rank)
			w.local.fail(err)
			e.refuseLock(w.local, err)
			continue
		}
		w.bundle.Upper.Refuse = mpierr.Win
		w.bundle.At = 0
		w.bundle.Upper.Begun = false
		e.Resume(w.bundle)
	}
}

// enqueue keeps the rest of a bundle until its lock is granted. The bundle no
// longer holds up later ones: it touches only the window whose lock it waits
// for, and its origin issues nothing else there before it has heard of the grant.
func (e *Engine) enqueue(b *link.Bundle) {
	c := e.Keep(b)
	e.waits[lockKey{b.Upper.Key, b.Session.ID()}] = &queuedRequest{bundle: c, since: e.Now}
	e.watchHolders(b.Upper.Key, e.locks[b.Upper.Key])
}

func (e *Engine) lockLocal(a *Access, ask *wire.Lock) {
	l := e.lockOf(a.window)
	ask.Window = a.window
	granted, class := e.ask(l, localHolder, ask)
	switch {
	case class != mpierr.Success:
		err := refusal(wire.CodeLock, class, e.cfg.Rank)
		a.fail(err)
		e.refuseLock(a, err)
	case granted:
		a.lock = locked
	default:
		a.lock = locking
		e.waits[lockKey{a.window, localHolder}] = &queuedRequest{local: a, since: e.Now}
		e.watchHolders(a.window, l)
	}
}

// withdraw gives up the lock of this rank's own window, or takes the request for
// it back; a is the access to it.
func (e *Engine) withdraw(a *Access) {
	delete(e.waits, lockKey{a.window, localHolder})
	e.grant(a.window, e.lockOf(a.window).Drop(localHolder, e.granted[:0]))
	a.lock = unlocked
}

// release gives up holder's lock on a window and lets those waiting have it.
func (e *Engine) release(id uint32, holder uint64) mpierr.Class {
	l := e.lockOf(id)
	granted, class := l.Release(holder, e.granted[:0])
	if class == mpierr.Success {
		l.gone(holder)
		e.completed(holder, id, false)
	}
	e.grant(id, granted)
	return class
}

// grant takes those who now hold a lock from its queue. A peer's bundle goes on
// as a parked one, at the next Tick.
func (e *Engine) grant(id uint32, granted []window.Grant[struct{}]) {
	e.granted = granted
	l := e.locks[id]
	for _, g := range granted {
		k := lockKey{id, g.Holder}
		w := e.waits[k]
		if w == nil {
			panic("engine: a lock was granted that nobody waits for")
		}
		delete(e.waits, k)
		if w.local != nil {
			w.local.lock = locked
			e.issueQueue(w.local)
			continue
		}
		l.hold(sessionOf(w.bundle.Session))
		if l.Waiting() > 0 {
			e.watchHolder(sessionOf(w.bundle.Session))
		}
		e.Resume(w.bundle)
	}
}

// dropLocks releases what a dead peer holds and forgets what it waits for.
func (e *Engine) dropLocks(s *Session) {
	e.cfg.Windows.All(func(w *window.Window) {
		w.Checker().End(s.ID())
		dropWord(w, s.Rank())
	})
	for _, id := range slices.Sorted(maps.Keys(e.locks)) {
		k := lockKey{id, s.ID()}
		if wait := e.waits[k]; wait != nil {
			delete(e.waits, k)
			e.Forget(wait.bundle)
		}
		l := e.locks[id]
		l.gone(s.ID())
		e.grant(id, l.Retry(l.Drop(s.ID(), e.granted[:0])))
	}
}
