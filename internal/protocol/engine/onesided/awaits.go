package onesided

import "fmt"

// place names a's window.
func (a *Access) place() string {
	title := a.origin.cfg.Windows.Title(a.window)
	if a.session == nil {
		return title + " of this rank"
	}
	return fmt.Sprintf("%s at rank %d", title, a.session.Rank())
}

// Awaits says in words what the wait is for.
func (w *FlushWait) Awaits() string {
	a := (*Access)(w)
	if w.lock == locking {
		return (*LockWait)(w).Awaits()
	}
	return "operations on " + a.place() + " to complete"
}

// Awaits says in words what the wait is for.
func (w *LocalWait) Awaits() string { return (*FlushWait)(w).Awaits() }

// Awaits says in words what the wait is for.
func (w *LockWait) Awaits() string { return "the lock of " + (*Access)(w).place() }

// Awaits says in words what the wait is for.
func (w *ReleaseWait) Awaits() string { return (*FlushWait)(w).Awaits() }

// Awaits says in words what the wait is for.
func (w *RoomWait) Awaits() string {
	return "room for another operation on " + (*Access)(w).place()
}

// Awaits says in words what the wait is for.
func (w *LockOrderWait) Awaits() string {
	for _, a := range w.asked {
		if a.comesFirst() {
			return (*LockWait)(a).Awaits() + ", which was asked for before"
		}
	}
	return "locks that were asked for before"
}

// Awaits says in words what the wait is for.
func (w *ExposureWait) Awaits() string {
	return fmt.Sprintf("rank %d to complete its access epoch on %s of this rank", w.session.Rank(), w.origin.cfg.Windows.Title(w.window))
}

// Awaits says in words what the wait is for.
func (r *Request) Awaits() string {
	if r.behind != nil && r.behind.lock == locking {
		return (*LockWait)(r.behind).Awaits()
	}
	return "an operation to complete"
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
