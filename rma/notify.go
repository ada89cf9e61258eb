package rma

import (
	"context"
	"slices"
	"sync"

	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// Notify has a counter of the target's window count up by one, once everything that this rank has
// issued to target on the window has completed there: a flush that tells the target, and that the
// origin need not wait for (flush_notify in mpi-forum/mpi-issues 59). So it also counts after what this rank has
// notified target of before. It needs an epoch that gives access to target. It
// blocks while there is no room to send, which ctx bounds, and never for the target. It leaves as
// Location.Notify says. With nothing issued before it is a notification without data. Classes: ErrRank, ErrRMASync,
// ErrArg if there is no such counter, ErrWin, ErrProcFailed; ErrTimeout, and it may count all the same.
func (w *Win) Notify(ctx context.Context, target, counter int) error {
	o := operation{Operation: epochs.Operation{Name: "notify", Target: target}, at: At(0).Within(ctx).Notify(counter), align: 1}
	o.Code = wire.CodeNotify
	return w.report(w.issue(&o, nil))
}

// Notified returns the number of one of this rank's own counters: how often it was counted up
// since Reset or the window's creation. All that was notified of by then is visible. It does not
// block. Classes: ErrArg if there is no such counter, ErrWin.
func (w *Win) Notified(counter int) (n uint64, err error) {
	return w.readCounter("notified", counter, (*windows.Counters).Read)
}

// ResetNotified sets one of this rank's own counters to 0 and returns what it was, in one step: no
// notification is lost in between. For the rest it is as Notified.
func (w *Win) ResetNotified(counter int) (former uint64, err error) {
	return w.readCounter("reset_notified", counter, (*windows.Counters).Reset)
}

func (w *Win) readCounter(op string, counter int, read func(*windows.Counters, int) uint64) (n uint64, err error) {
	defer w.handle(&err)
	w.poller.Lock()
	defer w.poller.UnlockQuiet()
	if err := w.checkOwn(op, counter); err != nil {
		return 0, err
	}
	return read(w.own.Counters(), counter), nil
}

// WaitNotified blocks until one of this rank's own counters is at least atLeast, and returns its
// number. All that was notified of by then is visible. The number says how many operations have counted, and not
// which: one that an origin has issued later may count first, unless that is Notify, or the window has the info key
// xdprma_ordered. It needs no epoch. Several goroutines may wait, for one counter or for several. If it has to wait and a rank of the window has failed, or all others have
// left, it fails with ErrProcFailed, since the notification might have been theirs. So do all later calls: survivors
// look at Notified, or go on with a window of their own (comm.CreateGroup). While it waits, Free fails with ErrRMASync.
// Classes: ErrArg if there is no such counter; ErrWin, also if it was called while Free waited for the other
// ranks; ErrTimeout; ErrProcFailed.
func (w *Win) WaitNotified(ctx context.Context, counter int, atLeast uint64) (n uint64, err error) {
	defer w.handle(&err)
	one := [1]int{counter}
	_, n, err = w.waitNotified(ctx, atLeast, one[:])
	return n, err
}

// mostAwaited bounds how many counters one call waits for: each look at them is a look at all.
const mostAwaited = 1024

// WaitAnyNotified is WaitNotified for the first of several counters to be at least atLeast, up to 1024. It
// returns which: if there are more, the one that stands before the others in counters.
func (w *Win) WaitAnyNotified(ctx context.Context, atLeast uint64, counters ...int) (counter int, n uint64, err error) {
	defer w.handle(&err)
	if len(counters) == 0 {
		return -1, 0, newError("wait_notified", ErrArg, NoRank, "no counter is given, so the wait would have no end")
	}
	if len(counters) > mostAwaited {
		return -1, 0, newError("wait_notified", ErrArg, NoRank, "%d counters are given: one call waits for at most %d", len(counters), mostAwaited)
	}
	return w.waitNotified(ctx, atLeast, counters)
}

func (w *Win) waitNotified(ctx context.Context, atLeast uint64, counters []int) (counter int, n uint64, err error) {
	x := notifiedWaits.Get().(*epochs.NotifiedWait)
	defer func() { x.Clear(); notifiedWaits.Put(x) }()
	x.Name(counters)
	defer w.poller.Guard()
	e := w.poller.Lock()
	for _, i := range counters {
		if err := w.checkOwn("wait_notified", i); err != nil {
			w.poller.UnlockQuiet()
			return -1, 0, err
		}
	}
	w.acting.Add(1) // Free leaves the counters alone
	defer w.acting.Add(-1)
	x.Begin(w.epochs, atLeast, w.ranks, e)
	err = w.poller.WaitLocked(ctx, x)
	if x.Waits() {
		w.poller.Lock()
		x.End()
		w.poller.UnlockQuiet()
	}
	rank := NoRank
	switch {
	case x.Counter >= 0:
		err = nil
	case err == nil && x.Lost != nil:
		rank, err = slices.Index(w.ranks, x.Lost.Rank), x.Lost
	case err == nil:
		err = newError("wait_notified", ErrWin, NoRank, "the window has been freed meanwhile")
	}
	return x.Counter, x.Number, named("wait_notified", rank, err)
}

var notifiedWaits = sync.Pool{New: func() any { return new(epochs.NotifiedWait) }}

// checkOwn returns nil if this rank's window is there and has such a counter. It is called with
// the engine's lock held.
func (w *Win) checkOwn(op string, counter int) error {
	if err := w.usable(op); err != nil {
		return err
	}
	return w.targets[w.comm.Rank()].checkCounter(op, NoRank, counter)
}

// checkCounter returns nil if the window has such a counter.
func (t *target) checkCounter(op string, rank, counter int) error {
	if uint(counter) >= uint(t.counters) {
		return newError(op, ErrArg, rank, "counter %d of a window with %d counters: create it with rma.Counters at the target", counter, t.counters)
	}
	return nil
}
