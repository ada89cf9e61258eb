package onesided

import "slices"

// An origin asks for a lock only when it has the locks that it asked for before, but for
// those of an epoch of lock_all. Lock returns before another host's lock is granted. So
// without this rule two origins that lock two targets in the same order could each hold
// what the other one waits for.
//
// Goroutines lock independently of each other. A lock that a call waits for is not that of
// the goroutine which asks for the next one, and the next one does not come after it.

// noteAsked remembers that a's lock was asked for.
func (x *Operations) noteAsked(a *Access) {
	a.awaited = false
	if len(x.asked) == cap(x.asked) {
		x.forgetGranted()
	}
	x.asked = append(x.asked, a)
}

func (x *Operations) forgetGranted() {
	x.asked = slices.DeleteFunc(x.asked, func(a *Access) bool { return a.lock != locking })
}

// comesFirst reports whether the next lock may be asked for only when a's is granted. One
// that is to be given back at once holds nobody up.
func (a *Access) comesFirst() bool { return a.lock == locking && !a.awaited && !a.unwanted }

// NotAwaited says that a call which has flushed a, or unlocked it, does not wait any more.
func (a *Access) NotAwaited() { a.awaited = false }

// MayLock reports whether a lock may be asked for. If not, it asks for prompt answers to
// the requests for the locks that come first; LockOrderWait tells when they are granted.
func (x *Operations) MayLock() bool {
	x.forgetGranted()
	may := true
	for _, a := range x.asked {
		if !a.comesFirst() {
			continue
		}
		may = false
		if a.session != nil {
			a.session.Push(a.lastSeq)
		}
	}
	return may
}

// A LockOrderWait is met when the locks that were asked for have been granted, other than
// those that calls wait for.
type LockOrderWait Operations

// Met reports whether the wait is over.
func (w *LockOrderWait) Met() bool { return !slices.ContainsFunc(w.asked, (*Access).comesFirst) }
