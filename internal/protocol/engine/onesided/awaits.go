package onesided

import "fmt"

// place names a's window.
func (a *Access) place() string {
	if a.session == nil {
		return fmt.Sprintf("window %d of this rank", a.window)
	}
	return fmt.Sprintf("window %d at rank %d", a.window, a.session.Rank())
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
	return fmt.Sprintf("rank %d to complete its access epoch on window %d of this rank", w.session.Rank(), w.window)
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
	Window  uint32
	Waiter  int   // the rank that waits
	Holders []int // those that hold the lock
	Since   int64 // on the engine's clock, in nanoseconds
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
		w := WaitForLock{Window: id, Waiter: -1}
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
