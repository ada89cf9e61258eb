package onesided

import (
	"fmt"

	"github.com/xdprma/xdprma/mpierr"
)

// place names a's window.
func (a *Access) place() string {
	title := a.origin.cfg.Windows.Title(a.window)
	if a.session == nil {
		return title + " of this rank"
	}
	return fmt.Sprintf("%s at rank %d", title, a.session.Rank())
}

// rank returns the rank of a's target, or NoRank if that is this one.
func (a *Access) rank() int {
	if a.session == nil {
		return mpierr.NoRank
	}
	return a.session.Rank()
}

// Awaits says in words what the wait is for, and which rank of the job.
func (w *FlushWait) Awaits() (what string, rank int) {
	a := (*Access)(w)
	if w.lock == locking {
		return (*LockWait)(w).Awaits()
	}
	return "operations on " + a.place() + " to complete", a.rank()
}

// Awaits is that of FlushWait.
func (w *LocalWait) Awaits() (what string, rank int) { return (*FlushWait)(w).Awaits() }

// Awaits says in words what the wait is for, and which rank of the job.
func (w *LockWait) Awaits() (what string, rank int) {
	a := (*Access)(w)
	return "the lock of " + a.place(), a.rank()
}

// Awaits is that of FlushWait.
func (w *ReleaseWait) Awaits() (what string, rank int) { return (*FlushWait)(w).Awaits() }

// Awaits says in words what the wait is for, and which rank of the job.
func (w *RoomWait) Awaits() (what string, rank int) {
	a := (*Access)(w)
	return "room for another operation on " + a.place(), a.rank()
}

// Awaits says in words what the wait is for, and which rank of the job, or NoRank.
func (w *LockOrderWait) Awaits() (what string, rank int) {
	for _, a := range w.asked {
		if a.comesFirst() {
			what, rank = (*LockWait)(a).Awaits()
			return what + ", which was asked for before", rank
		}
	}
	return "locks that were asked for before", mpierr.NoRank
}

// Awaits says in words what the wait is for, and which rank of the job.
func (w *ExposureWait) Awaits() (what string, rank int) {
	rank = w.session.Rank()
	return fmt.Sprintf("rank %d to complete its access epoch on %s of this rank", rank, w.origin.cfg.Windows.Title(w.window)), rank
}

// Awaits says in words what the wait is for, and which rank of the job, or NoRank.
func (r *Request) Awaits() (what string, rank int) {
	if r.behind != nil && r.behind.lock == locking {
		return (*LockWait)(r.behind).Awaits()
	}
	return "an operation to complete", mpierr.NoRank
}

// WaitForLock is that somebody waits for the lock of one of its windows.
type WaitForLock struct {
	Window  string // its name, or its id in digits
	Waiter  int    // the rank that waits
	Holders []int  // those that hold the lock
	Since   int64  // on the engine's clock, in nanoseconds
}

// LockWaits lists who waits for the locks of this rank's windows, the first of each.
func (x *Locks) LockWaits() (waits []WaitForLock) {
	if x.waiting == 0 {
		return nil
	}
	rank := func(r *lockRequest) int {
		if r.peer == nil {
			return x.cfg.Rank
		}
		return r.peer.Rank()
	}
	for id, l := range x.byWindow {
		if l.Waiting() == 0 {
			continue
		}
		w := WaitForLock{Window: x.cfg.Windows.Name(id), Waiter: -1}
		l.EachHolder(func(r *lockRequest) { w.Holders = append(w.Holders, rank(r)) })
		l.EachWaiter(func(r *lockRequest) {
			if w.Waiter < 0 {
				w.Waiter, w.Since = rank(r), r.since
			}
		})
		waits = append(waits, w)
	}
	return waits
}
