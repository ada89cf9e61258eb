package onesided

import (
	"slices"
	"sync/atomic"

	"github.com/xdprma/xdprma/internal/protocol/engine/line"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

type lockPhase uint8

const (
	unlocked lockPhase = iota
	locked
	locking // asked for, not known to be held
	refused // the target does not give it: no call of the epoch may act
)

// Access is what a rank keeps, as origin, about one window at one target: which
// operations are outstanding there, and the lock.
type Access struct {
	origin    *Origin
	session   *Peer           // nil where the target is this rank
	ownWindow *windows.Window // set where the target is this rank
	window    uint32
	lastSeq   uint64 // the last bundle with an operation on it
	pending   int32  // operations that await an answer
	results   int32  // calls kept back that will have an answer
	lock      lockPhase
	refusal   *mpierr.Error // of the lock, while it is refused
	shared    sharedLock
	unwanted  bool         // the lock that was asked for is given back as soon as it is held
	waiting   atomic.Int32 // calls that wait for operations here; see order.go
	polled    atomic.Bool  // a call has looked for one, while others wait to lock
	reach     bool         // the target's program reaches the window
	checked   bool         // the window is in checking mode
	mark      mark         // what the target is still to be told is complete
	markSeq   uint64       // the last bundle that told it
	gaveSeq   uint64       // the last bundle that gave a lock up
	queue     line.Line[deferred]
	err       atomic.Pointer[mpierr.Error] // the first failure since the last flush; see Failed

	starts, posts, completed uint32 // access epochs begun, opened by the target, ended
	exposure                        // of this rank's own window, to the target
}

// OpenAccess returns the access at s to the window with the given id, the same
// at every call.
func (x *Origin) OpenAccess(s *Peer, id uint32) *Access {
	a := s.access[id]
	if a == nil {
		a = &Access{origin: x, session: s, window: id}
		if s.Failure() != nil {
			a.err.Store(s.Failure())
		}
		if s.access == nil {
			s.access = map[uint32]*Access{}
		}
		s.access[id] = a
	}
	return a
}

// OpenLocal returns the access of this rank to its own window w.
func (x *Origin) OpenLocal(w *windows.Window) *Access {
	a := &Access{origin: x, ownWindow: w, window: w.ID()}
	x.own = append(x.own, a)
	return a
}

// CloseAccess forgets a, on which nothing may be issued any more. Calls that are
// outstanding end with an error, and their results are left alone from now on. A lock
// that is held, or asked for, is given back.
func (x *Origin) CloseAccess(a *Access) {
	rank := x.cfg.Rank
	if s := a.session; s == nil {
		x.own = slices.DeleteFunc(x.own, func(b *Access) bool { return a == b })
	} else if rank = s.Rank(); s.access[a.window] == a {
		delete(s.access, a.window)
		s.recent = nil
	}
	err := mpierr.New("access", mpierr.Win, rank, "the window has been freed")
	x.dropDeferred(a, err)
	x.endOps(err, func(o *op) bool { return o.access == a && !o.asksLock() })
	a.posts = a.starts
	if l := &a.shared; l.word != nil {
		if l.byWord { // at once: the memory of the word may be unmapped next
			_, l.tell = l.word.Give(l.index)
			a.lock, l.byWord = unlocked, false
		}
		l.word = nil
	}
	if a.shared.tell {
		x.leaveSoon(a)
	} else if a.lock != unlocked {
		x.Leave(a)
	}
}

// accessTo returns the access at s to a window, or nil.
func (s *originSide) accessTo(id uint32) *Access {
	if a := s.recent; a != nil && a.window == id {
		return a
	}
	a := s.access[id]
	s.recent = a
	return a
}

func (a *Access) dead() bool { return a.session != nil && a.session.Dead() }

func (a *Access) fail(err *mpierr.Error) {
	a.err.CompareAndSwap(nil, err)
}

// Locking reports whether the lock was asked for and is not known to be held.
func (a *Access) Locking() bool { return a.lock == locking }

// Failed reports whether TakeError would return an error. It needs no lock: who
// has seen a wait end sees the failures from before.
func (a *Access) Failed() bool { return a.err.Load() != nil }

// TakeError returns the first failure at the target since the last call, and
// forgets it unless the target is dead.
func (a *Access) TakeError() error {
	err := a.err.Load()
	if err == nil {
		return nil
	}
	if !a.dead() {
		a.err.Store(nil)
	}
	return err
}

// Err returns why the target cannot be reached, or nil.
func (a *Access) Err() error {
	if err := a.targetError(); err != nil {
		return err
	}
	return nil
}

func (a *Access) targetError() *mpierr.Error {
	switch s := a.session; {
	case s == nil:
	case s.Dead():
		return s.Failure()
	case s.left != nil:
		return s.left
	}
	return nil
}

// Answers reports whether the target is this rank, or has answered it at least once.
func (a *Access) Answers() bool { return a.session == nil || !a.session.Dialing() }

// Session returns the session with the rank that a leads to, nil for this rank.
func (a *Access) Session() *link.Session {
	if a.session == nil {
		return nil
	}
	return a.session.Session
}

// Flush sends what is outstanding on a and asks for prompt acknowledgement;
// FlushWait tells when it has been applied at the target.
func (x *Origin) Flush(a *Access) { x.flush(a, markAll) }

// FlushLocal is Flush for those who wait for LocalWait only.
func (x *Origin) FlushLocal(a *Access) { x.flush(a, markReads) }

// FlushUnmarked is Flush for the end of an epoch that orders nothing until others have
// ended theirs: in checking mode the target forgets what was accessed later (Ordered).
func (x *Origin) FlushUnmarked(a *Access) { x.flush(a, markNone) }

func (x *Origin) flush(a *Access, m mark) {
	if a.checked && m != markNone {
		x.wantMark(a, m)
	}
	if s := a.session; s != nil {
		s.Push(a.lastSeq)
	}
}

// A FlushWait is met when every operation issued on the access has completed at
// the origin and at the target, or the target is dead.
type FlushWait Access

// Met reports whether the wait is over.
func (w *FlushWait) Met() bool {
	s := w.session
	if s == nil {
		return w.queue.Empty()
	}
	return s.Dead() ||
		w.pending == 0 && w.lock != locking && w.queue.Empty() && w.lastSeq < s.Acked(link.Request) && (!w.checked || (*Access)(w).marked()) && int32(s.refusalsSeen-s.Told.Heard) >= 0
}

// A LocalWait is met when every operation issued on the access has completed at
// the origin: its buffers may be used again.
type LocalWait Access

// Met reports whether the wait is over.
func (w *LocalWait) Met() bool {
	if w.session == nil || w.session.Dead() {
		return w.results == 0
	}
	return w.pending == 0 && w.results == 0 && (!w.checked || (*Access)(w).marked())
}

// A LockWait is met when the lock that was asked for is held or refused.
type LockWait Access

// Met reports whether the wait is over.
func (w *LockWait) Met() bool { return w.lock != locking || (*Access)(w).dead() }

// Lock asks for the lock of a's window at the target. It does not wait: what is
// issued next travels with the request, and is applied under the lock.
// It returns false if there is no room now (see RoomWait).
func (x *Origin) Lock(a *Access, exclusive bool) bool {
	return x.lock(a, wire.Lock{Exclusive: exclusive})
}

// LockPassing is Lock for the shared lock of one of several targets that the caller
// holds the locks of, in an epoch that began at the given time: it does not wait behind
// requests that have not waited for longer than that.
func (x *Origin) LockPassing(a *Access, began int64) bool {
	return x.lock(a, wire.Lock{Passing: true, Age: uint64(max(0, x.link.Now-began))})
}

// lock is Lock for any type of lock.
func (x *Origin) lock(a *Access, ask wire.Lock) bool {
	if a.ownWindow != nil {
		x.lockLocal(a, &ask)
		return true
	}
	s := a.session
	if err := a.targetError(); err != nil {
		a.fail(err)
		return true
	}
	if a.unwanted {
		return false
	}
	if a.takeWord(ask.Exclusive) {
		return true
	}
	if s.Begun(link.Request) != link.None && !x.link.Empty(s.Begun(link.Request)) {
		s.CloseBundle(link.Request)
	}
	i := s.Begun(link.Request)
	if i == link.None {
		i = s.OpenBundle(link.Request)
	}
	t := link.None
	if i != link.None {
		t = x.newOp(a, nil)
	}
	if t == link.None {
		return false
	}
	x.ops[t].sent = true
	ask.Window, ask.Token = a.window, x.token(t)
	r := ask.Record()
	x.link.Append(i, &r, 0)
	if a.gaveSeq >= s.Acked(link.Request) {
		x.link.Mark(i, wire.FlagAfterAll) // or it could overtake the end of the last epoch
	}
	a.lastSeq = x.link.Sequence(i)
	a.lock = locking
	x.noteAsked(a)
	s.lockOpen = a
	s.Seal()
	return true
}

// lockLocal is Lock for this rank's own window.
func (x *Origin) lockLocal(a *Access, ask *wire.Lock) {
	switch granted, class := x.locks.acquireOwn(a.window, ask, a); {
	case class != mpierr.Success:
		a.denied(class)
	case granted:
		a.lock = locked
	default:
		a.lock = locking
		x.noteAsked(a)
		x.locks.watchHolders(a.window)
	}
}

// granted takes in that this rank has the lock of its own window.
func (a *Access) granted() {
	a.lock = locked
	a.origin.issueQueue(a)
}

// denied takes in that this rank is not given the lock of its own window.
func (a *Access) denied(class mpierr.Class) {
	err := refusal(wire.CodeLock, class, a.origin.cfg.Rank)
	a.fail(err)
	a.origin.refuseLock(a, err)
}

// Unlock releases the lock once everything issued on a has been applied. It
// returns false if it has to be called again: there is no room now, or the lock
// is not yet held. UnlockWait tells when it is done.
func (x *Origin) Unlock(a *Access) bool {
	if a.ownWindow != nil {
		switch a.lock {
		case locking:
			return false
		case locked:
			if class := x.locks.release(a.window, localHolder); class != mpierr.Success {
				a.fail(mpierr.New("unlock", class, x.cfg.Rank, "the lock is not held"))
			}
			a.lock = unlocked
		}
		return true
	}
	s := a.session
	if a.shared.byWord || a.shared.tell {
		return x.giveWord(a)
	}
	if s.Dead() {
		a.lock = unlocked
		return true
	}
	if a.lock == unlocked || a.lock == refused {
		return true
	}
	if !a.queue.Empty() {
		return false
	}
	var i int32
	if s.lockBundle() == a {
		i = s.Begun(link.Request)
		if !s.Fits(link.Request, 0) {
			s.CloseBundle(link.Request)
			return false
		}
	} else {
		return a.lock == locked && x.sendUnlock(a)
	}
	x.addUnlock(a, i)
	return true
}

// sendUnlock gives up a lock that is held; it returns false if there is no room now.
func (x *Origin) sendUnlock(a *Access) bool {
	i := a.session.Room(link.Request, 0)
	if i == link.None {
		return false
	}
	// Operations issued before may arrive later: so the target is to wait for
	// them.
	x.link.Mark(i, wire.FlagAfterAll)
	a.lock = unlocked
	x.addUnlock(a, i)
	return true
}

func (x *Origin) addUnlock(a *Access, i int32) {
	x.link.Append(i, &wire.Record{Code: wire.CodeUnlock, Window: a.window}, 0)
	a.lastSeq = x.link.Sequence(i)
	a.gaveSeq = a.lastSeq
	x.link.Mark(i, wire.FlagAckNow)
	a.session.MarkDirty()
}

// Leave gives up a lock that nobody wants any more, as soon as it is held. Nothing has
// been issued under it. Until then Lock asks for no other.
func (x *Origin) Leave(a *Access) {
	switch {
	case a.ownWindow != nil:
		x.locks.withdrawOwn(a.window)
		a.lock = unlocked
	case a.lock == refused:
		a.Unlocked()
	case a.lock != unlocked:
		x.leaveSoon(a)
	}
}

// leaveSoon has the target told that a's lock is given up, as soon as it is held.
func (x *Origin) leaveSoon(a *Access) {
	if a.dead() || a.unwanted {
		return
	}
	a.unwanted = true
	x.deferCall(&Call{Access: a, Code: wire.CodeUnlock})
	a.session.MarkDirty() // it may be held by now
}

// UnlockWait is met when the lock has been released at the target and everything
// issued under it has completed.
type UnlockWait = FlushWait

// Unlocked records that an unlock's wait is over.
func (a *Access) Unlocked() { a.lock, a.refusal = unlocked, nil }

// refuseLock takes in that the lock which a asked for is not given: calls that were kept
// back for it fail, and so do those to come until the epoch is over. Nobody is told if
// the lock has been given up.
func (x *Origin) refuseLock(a *Access, why *mpierr.Error) (told *mpierr.Error) {
	if a.unwanted {
		a.lock = unlocked // what is in the queue goes on to end that
		if a.session != nil {
			a.session.MarkDirty()
		}
		return nil
	}
	a.lock, a.refusal = refused, why
	x.dropDeferred(a, why)
	if a.session != nil {
		a.session.MarkDirty()
	}
	return why
}

// A ReleaseWait is met when Unlock may succeed: the lock is held, or was refused,
// and there is room to say so.
type ReleaseWait Access

// Met reports whether the wait is over.
func (w *ReleaseWait) Met() bool {
	s := w.session
	if w.shared.byWord && !(*FlushWait)(w).Met() {
		return false
	}
	return (*LockWait)(w).Met() && w.queue.Empty() && (s == nil || s.Dead() || s.SendRoom())
}
