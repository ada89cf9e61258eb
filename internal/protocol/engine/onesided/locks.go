package onesided

import (
	"maps"
	"slices"

	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// Locks are those of the windows that this rank exposes. Bundles of peers wait for them, and
// accesses of this rank.
type Locks struct {
	*base
	byWindow map[uint32]*lock
	wordsAt  int64                        // when to look at the words that somebody waits for; 0: nobody does
	waiting  int                          // requests that wait
	leaving  bool                         // this rank has left: nobody waits here any more
	granted  []windows.Grant[lockRequest] // scratch
}

// localHolder is this rank's own key in its windows' locks; others have the id
// of their session.
const localHolder uint64 = 0

// lockRequest is what a window's lock notes with the request of a peer, or of this rank: how
// to go on when it is granted.
type lockRequest struct {
	peer   *Peer        // nil: this rank
	bundle *link.Bundle // of the peer, while it waits: what is left of it
	local  waiter       // of this rank
	since  int64
}

// waiter is an access of this rank to its own window, which waits for the lock.
type waiter interface {
	granted()
	denied(mpierr.Class)
}

// lock is a window's lock. The peers that hold it are asked for a sign of life while somebody
// waits, so that the lock of one that died is released.
type lock struct {
	windows.Lock[lockRequest]
	host    *windows.Host // nil if no other rank of the host maps the window
	exposed bool          // by Post, so that it cannot be locked
	counted int           // of Locks.waiting, those that wait here
}

// acquire handles a peer's lock record.
func (x *Locks) acquire(s *Peer, r *wire.Record) (granted bool, class mpierr.Class) {
	if w, class := x.windowFor(s, r); w == nil {
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
	granted, class = x.ask(l, s.ID(), &ask, lockRequest{peer: s, since: x.link.Now})
	if x.leaving && !granted && class == mpierr.Success {
		x.grant(r.Window, l.Drop(s.ID(), x.granted[:0]))
		return false, mpierr.ProcFailed
	}
	return granted, class
}

// acquireOwn asks for the lock of one of this rank's own windows. If it has to wait,
// watchHolders follows.
func (x *Locks) acquireOwn(id uint32, ask *wire.Lock, w waiter) (granted bool, class mpierr.Class) {
	return x.ask(x.lockOf(id), localHolder, ask, lockRequest{local: w, since: x.link.Now})
}

// waits reports whether s waits for the lock of a window, or its request goes on next.
func (x *Locks) waits(s *Peer, id uint32) bool {
	l := x.byWindow[id]
	return l != nil && l.Waiter(s.ID()) != nil || x.link.Resumed(s.Session, id)
}

// waitsFor reports whether somebody waits, perhaps for s.
func (x *Locks) waitsFor(s *Peer) bool { return s.blocks && x.waiting > 0 }

// count takes in that a request of l has begun to wait, or that some have ended to.
func (x *Locks) count(l *lock) {
	x.waiting += l.Waiting() - l.counted
	l.counted = l.Waiting()
}

// watchHolders begins to watch those who hold the lock of a window, for the first request
// that waits; who comes to hold it while others wait is watched from then on.
func (x *Locks) watchHolders(id uint32) {
	l := x.byWindow[id]
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

func (x *Locks) watchHolder(s *Peer) {
	s.blocks = true
	s.Await()
}

// lockOf returns the lock of the window with that id.
func (x *Locks) lockOf(id uint32) *lock {
	l := x.byWindow[id]
	if l == nil {
		l = &lock{}
		if w := x.cfg.Windows.Lookup(id); w != nil && w.Host() != nil {
			l.host = w.Host()
			l.Share(l.host.Lock, func(index int) bool { return x.gone(l.host, index) })
		}
		x.byWindow[id] = l
	}
	return l
}

// ask asks for l in the name of a holder.
func (x *Locks) ask(l *lock, holder uint64, ask *wire.Lock, r lockRequest) (granted bool, class mpierr.Class) {
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
func (x *Locks) passes(l *lock, age uint64) bool {
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
func (x *Locks) ForgetWindow(id uint32) {
	l := x.byWindow[id]
	if l == nil {
		return
	}
	delete(x.byWindow, id)
	x.waiting -= l.counted
	l.EachWaiter(func(r *lockRequest) {
		if r.local != nil {
			r.local.denied(mpierr.Win)
			return
		}
		x.refuse(r.bundle, mpierr.Win)
	})
}

// refuse has all of a bundle refused that has waited for a lock.
func (x *Locks) refuse(b *link.Bundle, class mpierr.Class) {
	b.Upper.Refuse, b.Upper.Begun, b.At = class, false, 0
	x.link.Resume(b)
}

// RefuseWaiters refuses the requests of peers that wait for a lock, now and from now on: this rank
// leaves the job, and would soon be silent to them. It still serves all others.
func (x *Locks) RefuseWaiters() {
	x.leaving = true
	for _, id := range slices.Sorted(maps.Keys(x.byWindow)) {
		l := x.byWindow[id]
		var waiters []lockRequest
		l.EachWaiter(func(r *lockRequest) { waiters = append(waiters, *r) })
		for _, r := range waiters {
			if r.peer == nil || l.Waiter(r.peer.ID()) == nil {
				continue // of this rank, whose calls end with it; or granted, as one before it waits no more
			}
			x.grant(id, l.Drop(r.peer.ID(), x.granted[:0]))
			x.refuse(r.bundle, mpierr.ProcFailed)
		}
	}
}

// leave releases what s, which has left in good order, holds, and forgets what it waits for.
func (x *Locks) leave(s *Peer) {
	x.dropWaits(s)
	x.dropHeld(s)
}

// enqueue keeps the rest of a bundle until its lock is granted. The bundle no
// longer holds up later ones: it touches only the window whose lock it waits
// for, and its origin issues nothing else there before it has heard of the grant.
func (x *Locks) enqueue(b *link.Bundle) {
	x.byWindow[b.Upper.Key].Waiter(b.Session.ID()).bundle = x.link.Keep(b)
	x.watchHolders(b.Upper.Key)
}

// withdrawOwn gives up the lock of one of this rank's own windows, or takes the request for
// it back.
func (x *Locks) withdrawOwn(id uint32) {
	x.grant(id, x.lockOf(id).Drop(localHolder, x.granted[:0]))
}

// Expose says that a window's exposure epoch begins or ends. A window that is
// exposed cannot be locked, nor one that is locked be exposed: then Expose
// returns false, and the window is not exposed.
func (x *Locks) Expose(id uint32, exposed bool) bool {
	l := x.lockOf(id)
	switch {
	case exposed == l.exposed:
	case !exposed:
		x.Ordered(id)
		x.grant(id, l.Unblock(x.granted[:0]))
	case !l.Block():
		return false
	}
	l.exposed = exposed
	return true
}

// release gives up holder's lock on a window and lets those waiting have it.
func (x *Locks) release(id uint32, holder uint64) mpierr.Class {
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
func (x *Locks) grant(id uint32, granted []windows.Grant[lockRequest]) {
	x.granted = granted
	l := x.byWindow[id]
	x.count(l)
	for i := range granted {
		r := &granted[i].Ticket
		if r.local != nil {
			r.local.granted()
			continue
		}
		if l.Waiting() > 0 {
			x.watchHolder(r.peer)
		}
		x.link.Resume(r.bundle)
	}
	clear(granted) // which is scratch, and would keep what it points to
}

// dropWaits forgets what a dead peer waits for.
func (x *Locks) dropWaits(s *Peer) {
	for _, id := range slices.Sorted(maps.Keys(x.byWindow)) {
		l := x.byWindow[id]
		if r := l.Waiter(s.ID()); r != nil {
			x.link.Forget(r.bundle)
			x.grant(id, l.Drop(s.ID(), x.granted[:0]))
		}
	}
}

// drop releases what s, which has ended, holds.
func (x *Locks) drop(s *Peer) {
	x.dropServed(s)
	x.dropHeld(s)
}

func (x *Locks) dropHeld(s *Peer) {
	x.cfg.Windows.All(func(w *windows.Window) { dropWord(w, s.Rank()) })
	for _, id := range slices.Sorted(maps.Keys(x.byWindow)) {
		l := x.byWindow[id]
		x.grant(id, l.Retry(l.Drop(s.ID(), x.granted[:0])))
	}
}
