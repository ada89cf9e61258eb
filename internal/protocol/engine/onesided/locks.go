package onesided

import (
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

// lockRequest is what a window's lock notes with the request of a peer, or of this rank: how to go
// on when it is granted.
type lockRequest struct {
	peer   *Peer        // nil: this rank
	bundle *link.Bundle // of the peer, while it waits: what is left of it
	local  *Access      // of this rank
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
	return x.ask(l, s.ID(), &ask, lockRequest{peer: s, since: x.link.Now})
}

// lock is a window's lock. The peers that hold it are asked for a sign of life while somebody
// waits, so that the lock of one that died is released.
type lock struct {
	window.Lock[lockRequest]
	host    *window.Host // nil if no other rank of the host maps the window
	exposed bool         // by Post, so that it cannot be locked
	counted int          // of Operations.waiting, those that wait here
}

// count takes in that a request of l has begun to wait, or that some have ended to.
func (x *Operations) count(l *lock) {
	x.waiting += l.Waiting() - l.counted
	l.counted = l.Waiting()
}

// watchHolders begins to watch those who hold l, for the first request that
// waits; who comes to hold it while others wait is watched from then on.
func (x *Operations) watchHolders(id uint32, l *lock) {
	x.count(l)
	if l.Waiting() > 1 {
		return
	}
	l.EachHolder(func(r *lockRequest) {
		if r.peer != nil {
			x.watchHolder(r.peer)
		}
	})
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
func (x *Operations) ask(l *lock, holder uint64, ask *wire.Lock, r lockRequest) (granted bool, class mpierr.Class) {
	if ask.Passing && x.passes(l, ask.Age) {
		return l.Pass(holder, r)
	}
	return l.Acquire(holder, kindOf(ask.Exclusive), r)
}

// passes reports whether a request of lock_all goes before those who wait. It has to if
// its epoch is older than one of the waits: the epoch may hold the lock of another target
// that the one who waits here needs. A younger epoch waits its turn, so that nobody
// starves. The age is that at sending. The request may have been under way since, but
// for no longer than DeadAfter: then its session would have ended.
func (x *Operations) passes(l *lock, age uint64) bool {
	longest := int64(0)
	l.EachWaiter(func(r *lockRequest) { longest = max(longest, x.link.Now-r.since) })
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
	l := x.locks[id]
	if l == nil {
		return
	}
	delete(x.locks, id)
	x.waiting -= l.counted
	l.EachWaiter(func(r *lockRequest) {
		if r.local != nil {
			err := refusal(wire.CodeLock, mpierr.Win, x.cfg.Rank)
			r.local.fail(err)
			x.refuseLock(r.local, err)
			return
		}
		r.bundle.Upper.Refuse = mpierr.Win
		r.bundle.At = 0
		r.bundle.Upper.Begun = false
		x.link.Resume(r.bundle)
	})
}

// enqueue keeps the rest of a bundle until its lock is granted. The bundle no
// longer holds up later ones: it touches only the window whose lock it waits
// for, and its origin issues nothing else there before it has heard of the grant.
func (x *Operations) enqueue(b *link.Bundle) {
	l := x.locks[b.Upper.Key]
	l.Waiter(b.Session.ID()).bundle = x.link.Keep(b)
	x.watchHolders(b.Upper.Key, l)
}

func (x *Operations) lockLocal(a *Access, ask *wire.Lock) {
	l := x.lockOf(a.window)
	ask.Window = a.window
	granted, class := x.ask(l, localHolder, ask, lockRequest{local: a, since: x.link.Now})
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
		x.watchHolders(a.window, l)
	}
}

// withdraw gives up the lock of this rank's own window, or takes the request for
// it back; a is the access to it.
func (x *Operations) withdraw(a *Access) {
	x.grant(a.window, x.lockOf(a.window).Drop(localHolder, x.granted[:0]))
	a.lock = unlocked
}

// release gives up holder's lock on a window and lets those waiting have it.
func (x *Operations) release(id uint32, holder uint64) mpierr.Class {
	l := x.lockOf(id)
	granted, class := l.Release(holder, x.granted[:0])
	if class == mpierr.Success {
		x.completed(holder, id, false)
	}
	x.grant(id, granted)
	return class
}

// grant goes on with those who now hold a lock. A peer's bundle goes on as a parked one, at
// the next Tick.
func (x *Operations) grant(id uint32, granted []window.Grant[lockRequest]) {
	x.granted = granted
	l := x.locks[id]
	x.count(l)
	for i := range granted {
		r := &granted[i].Ticket
		if r.local != nil {
			r.local.lock = locked
			x.issueQueue(r.local)
			continue
		}
		if l.Waiting() > 0 {
			x.watchHolder(r.peer)
		}
		x.link.Resume(r.bundle)
	}
	clear(granted) // which is scratch, and would keep what it points to
}

// dropWaits forgets what a dead peer waits for, and what its accesses would conflict with:
// no program reaches a window in checking mode.
func (x *Operations) dropWaits(s *Peer) {
	x.cfg.Windows.All(func(w *window.Window) { w.Checker().End(s.ID()) })
	for _, id := range slices.Sorted(maps.Keys(x.locks)) {
		l := x.locks[id]
		if r := l.Waiter(s.ID()); r != nil {
			x.link.Forget(r.bundle)
			x.grant(id, l.Drop(s.ID(), x.granted[:0]))
		}
	}
}

// dropLocks releases what a dead peer holds.
func (x *Operations) dropLocks(s *Peer) {
	x.cfg.Windows.All(func(w *window.Window) { dropWord(w, s.Rank()) })
	for _, id := range slices.Sorted(maps.Keys(x.locks)) {
		l := x.locks[id]
		x.grant(id, l.Retry(l.Drop(s.ID(), x.granted[:0])))
	}
}
