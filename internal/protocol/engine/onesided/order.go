package onesided

import "slices"

// An origin asks for a lock only when it has the locks that it asked for before, but for
// those of an epoch of lock_all. Lock returns before another host's lock is granted. So
// without this rule two origins that lock two targets in the same order could each hold
// what the other one waits for.
//
// Goroutines lock independently of each other. A goroutine that asks for a lock makes no
// other call meanwhile. So the lock does not come after one that a call waits for at the
// same time, or has looked for since.

// noteAsked remembers that a's lock was asked for.
func (x *Origin) noteAsked(a *Access) {
	a.polled.Store(false)
	if len(x.asked) == cap(x.asked) {
		x.forgetGranted()
	}
	x.asked = append(x.asked, a)
}

func (x *Origin) forgetGranted() {
	x.asked = slices.DeleteFunc(x.asked, func(a *Access) bool { return a.lock != locking })
}

// comesFirst reports whether the next lock may be asked for only when a's is granted. One
// that is to be given back at once holds nobody up.
func (a *Access) comesFirst() bool {
	return a.lock == locking && a.waiting.Load() == 0 && !a.polled.Load() && !a.unwanted
}

// Waiting adds a number to that of the calls which wait for operations on a, and so for its
// lock. Each call takes away what it has added. An end needs no turn of the engine. A call
// begins within one, in which others learn that the lock does not hold them up any more.
func (a *Access) Waiting(calls int32) { a.waiting.Add(calls) }

// Waiting is Access.Waiting for calls that wait for r.
func (r *Request) Waiting(calls int32) {
	if r.behind != nil {
		r.behind.Waiting(calls)
	}
}

// Polled says that a call has looked whether r is over, and will look again.
func (r *Request) Polled() {
	if r.behind != nil {
		r.behind.polled.Store(true)
	}
}

// BeginLock says that a call begins, which asks for a lock once a LockOrderWait is met. Its
// goroutine may be the one that has looked for others until now.
func (x *Origin) BeginLock() {
	x.forgetGranted()
	for _, a := range x.asked {
		a.polled.Store(false)
	}
}

// A LockOrderWait is met when the next lock may be asked for: when those that were asked for
// have been granted, other than those that calls wait for. A grant comes without being
// asked for again, so nothing is sent for it.
type LockOrderWait Operations

// Met reports whether the wait is over.
func (w *LockOrderWait) Met() bool { return !slices.ContainsFunc(w.asked, (*Access).comesFirst) }
