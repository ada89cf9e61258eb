package onesided

import (
	"cmp"
	"maps"
	"slices"

	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
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
func (x *Operations) acquire(s *Peer, r *wire.Record) (granted bool, class mpierr.Class) {
	if w, class := x.windowFor(s, r.Window); w == nil {
		return false, class
	}
	ask, ok := r.Lock()
	if !ok {
		return false, mpierr.Locktype
	}
	l := x.lockOf(r.Window)
	if l.exposed {
		return false, mpierr.RMASync
	}
	if granted, class = x.ask(l, s.ID(), &ask); granted {
		l.hold(s)
	}
	return granted, class
}

// lock is a window's lock and the peers that hold it. They are asked for a sign
// of life while somebody waits, so that the lock of one that died is released.
type lock struct {
	window.Lock[struct{}]
	host    *window.Host // nil if no other rank of the host maps the window
	holders []*Peer
	exposed bool // by Post, so that it cannot be locked
}

func (l *lock) hold(s *Peer) { l.holders = append(l.holders, s) }

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
func (x *Operations) watchHolders(id uint32, l *lock) {
	if l.Waiting() > 1 {
		return
	}
	for _, s := range l.holders {
		x.watchHolder(s)
	}
	if l.host != nil {
		x.lookAtWord(id, l)
	}
}

func (x *Operations) watchHolder(s *Peer) {
	s.blocks = true
	s.Await()
}

// lockOf returns the lock of the window with that id.
func (x *Operations) lockOf(id uint32) *lock {
	l := x.locks[id]
	if l == nil {
		l = &lock{}
		if w := x.cfg.Windows.Lookup(id); w != nil && w.Host() != nil {
			l.host = w.Host()
			l.Share(l.host.Lock, func(index int) bool { return x.gone(l.host, index) })
		}
		x.locks[id] = l
	}
	return l
}

// ask asks for l in the name of a holder.
func (x *Operations) ask(l *lock, holder uint64, ask *wire.Lock) (granted bool, class mpierr.Class) {
	if ask.Passing && x.passes(l, ask.Window, ask.Age) {
		return l.Pass(holder, struct{}{})
	}
	return l.Acquire(holder, kindOf(ask.Exclusive), struct{}{})
}

// passes reports whether a request of lock_all goes before those who wait. It has to if
// its epoch is older than one of the waits: the epoch may hold the lock of another target
// that the one who waits here needs. A younger epoch waits its turn, so that nobody
// starves. The age is that at sending. The request may have been under way since, but
// for no longer than DeadAfter: then its session would have ended.
func (x *Operations) passes(l *lock, id uint32, age uint64) bool {
	longest := int64(0)
	l.Waiters(func(holder uint64) {
		if w := x.waits[lockKey{id, holder}]; w != nil {
			longest = max(longest, x.link.Now-w.since)
		}
	})
	return longest <= x.cfg.DeadAfter || uint64(longest-x.cfg.DeadAfter) < age
}

func kindOf(exclusive bool) window.LockType {
	if exclusive {
		return window.LockExclusive
	}
	return window.LockShared
}

// ForgetWindow drops the lock of a window that has been freed. Requests that wait for it
// are refused.
func (x *Operations) ForgetWindow(id uint32) {
	delete(x.locks, id)
	var keys []lockKey
	for k := range x.waits {
		if k.window == id {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b lockKey) int { return cmp.Compare(a.holder, b.holder) })
	for _, k := range keys {
		w := x.waits[k]
		delete(x.waits, k)
		if w.local != nil {
			err := refusal(wire.CodeLock, mpierr.Win, x.cfg.Rank)
			w.local.fail(err)
			x.refuseLock(w.local, err)
			continue
		}
		w.bundle.Upper.Refuse = mpierr.Win
		w.bundle.At = 0
		w.bundle.Upper.Begun = false
		x.link.Resume(w.bundle)
	}
}

// enqueue keeps the rest of a bundle until its lock is granted. The bundle no
// longer holds up later ones: it touches only the window whose lock it waits
// for, and its origin issues nothing else there before it has heard of the grant.
func (x *Operations) enqueue(b *link.Bundle) {
	c := x.link.Keep(b)
	x.waits[lockKey{b.Upper.Key, b.Session.ID()}] = &queuedRequest{bundle: c, since: x.link.Now}
	x.watchHolders(b.Upper.Key, x.locks[b.Upper.Key])
}

func (x *Operations) lockLocal(a *Access, ask *wire.Lock) {
	l := x.lockOf(a.window)
	ask.Window = a.window
	granted, class := x.ask(l, localHolder, ask)
	switch {
	case class != mpierr.Success:
		err := refusal(wire.CodeLock, class, x.cfg.Rank)
		a.fail(err)
		x.refuseLock(a, err)
	case granted:
		a.lock = locked
	default:
		a.lock = locking
		x.noteAsked(a)
		x.waits[lockKey{a.window, localHolder}] = &queuedRequest{local: a, since: x.link.Now}
		x.watchHolders(a.window, l)
	}
}

// withdraw gives up the lock of this rank's own window, or takes the request for
// it back; a is the access to it.
func (x *Operations) withdraw(a *Access) {
	delete(x.waits, lockKey{a.window, localHolder})
	x.grant(a.window, x.lockOf(a.window).Drop(localHolder, x.granted[:0]))
	a.lock = unlocked
}

// release gives up holder's lock on a window and lets those waiting have it.
func (x *Operations) release(id uint32, holder uint64) mpierr.Class {
	l := x.lockOf(id)
	granted, class := l.Release(holder, x.granted[:0])
	if class == mpierr.Success {
		l.gone(holder)
		x.completed(holder, id, false)
	}
	x.grant(id, granted)
	return class
}

// grant takes those who now hold a lock from its queue. A peer's bundle goes on
// as a parked one, at the next Tick.
func (x *Operations) grant(id uint32, granted []window.Grant[struct{}]) {
	x.granted = granted
	l := x.locks[id]
	for _, g := range granted {
		k := lockKey{id, g.Holder}
		w := x.waits[k]
		if w == nil {
			panic("onesided: a lock was granted that nobody waits for")
		}
		delete(x.waits, k)
		if w.local != nil {
			w.local.lock = locked
			x.issueQueue(w.local)
			continue
		}
		s := x.cfg.Peer(w.bundle.Session)
		l.hold(s)
		if l.Waiting() > 0 {
			x.watchHolder(s)
		}
		x.link.Resume(w.bundle)
	}
}

// dropWaits forgets what a dead peer waits for, and what its accesses would conflict with:
// no program reaches a window in checking mode.
func (x *Operations) dropWaits(s *Peer) {
	x.cfg.Windows.All(func(w *window.Window) { w.Checker().End(s.ID()) })
	for _, id := range slices.Sorted(maps.Keys(x.locks)) {
		k := lockKey{id, s.ID()}
		if wait := x.waits[k]; wait != nil {
			delete(x.waits, k)
			x.link.Forget(wait.bundle)
			x.grant(id, x.locks[id].Drop(s.ID(), x.granted[:0]))
		}
	}
}

// dropLocks releases what a dead peer holds.
func (x *Operations) dropLocks(s *Peer) {
	x.cfg.Windows.All(func(w *window.Window) { dropWord(w, s.Rank()) })
	for _, id := range slices.Sorted(maps.Keys(x.locks)) {
		l := x.locks[id]
		l.gone(s.ID())
		x.grant(id, l.Retry(l.Drop(s.ID(), x.granted[:0])))
	}
}
