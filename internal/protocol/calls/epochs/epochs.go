// Package epochs is the calls on a window as pure state machines: the synchronisation, which
// is fence; post, start, complete, wait and test; the locks; the flushes and free; the
// communication; and giving each of them up.
// Package rma carries the calls out on the ranks of a job, and package sim on simulated
// ones.
//
// A call that may wait is a Call. Its driver takes it from step to step:
//
//  1. Step, within a turn, does what can be done now.
//  2. Waits: the driver waits, outside the turn, until Until is met, and steps again.
//     Gathers: it waits for the other ranks of the window in a barrier, and tells Met of it.
//     Over: Err says how the call has ended.
//  3. Where the caller does not want to wait any longer, GiveUp takes the place of Step. It
//     leaves the window such that the call can be made again, unless the call's own
//     comment says otherwise.
//
// A communication call is an Operation, and goes the same way with Issue in place of Step:
//
//  1. Issue, within a turn, sends what there is room for.
//  2. Waits: as above. Acts: the target's memory is mapped here and nothing is in the way.
//     The driver ends the turn and calls Act. Over: Err says how the call has ended.
//  3. GiveUp ends it half-way.
//
// Everything else is over within one turn. Errors are *mpierr.Error, of the call and the
// rank of the window that they concern.
package epochs

import (
	"errors"

	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/mpierr"
)

// Turn is the one-sided operations of a rank, for as long as nobody else uses its engine. It
// is not kept. It is no interface, for which each put would pay.
type Turn = *onesided.Operations

// Condition is what a call waits for. Met is asked within a turn and changes nothing.
type Condition interface{ Met() bool }

// Config describes a window to those who synchronise on it.
type Config struct {
	Rank, Size int                              // in the window's group
	Own        *windows.Window                  // what this rank exposes
	NoLocks    bool                             // the info key no_locks is set: locks are refused
	Check      bool                             // the window is in checking mode
	Quiet      bool                             // Free does not wait for the other ranks
	Loads      func(target int) bool            // whether this process may load and store a target's memory
	Open       func(Turn, int) *onesided.Access // opens the access to a target; it waits for nothing
}

// Window is what a rank knows of the epochs on a window: its own, and those that it exposes
// its memory for. All its methods are called within a turn.
type Window struct {
	Config
	epoch   *windows.Epoch
	targets []target
	touched []int // targets with an access
	freed   bool

	began      int64              // when LockAll was called
	started    []int              // the group of Start
	completing bool               // Complete was called, and not yet been waited for
	posted     []*onesided.Access // to the group of Post
	exposures  uint64             // begun by Post
	watchers   int                // calls of Wait that go on
}

// target is what an origin knows of its epochs at one rank.
type target struct {
	access    *onesided.Access // nil until first used
	place     int              // in touched, from then on
	used      bool             // accessed in this epoch
	lazy      bool             // LockAll's lock has been asked for
	releasing bool             // an unlock has begun, and not yet been waited for
	asked     bool             // it has asked the target
}

// New returns the synchronisation of a window on which no epoch is open.
func New(c Config) *Window {
	return &Window{Config: c, epoch: windows.NewEpoch(c.Rank, c.Size, c.NoLocks), targets: make([]target, c.Size)}
}

// Freed reports whether the window has been freed.
func (w *Window) Freed() bool { return w.freed }

// Usable returns nil unless the window has been freed.
func (w *Window) Usable(op string) error {
	if w.freed {
		return mpierr.New(op, mpierr.Win, mpierr.NoRank, "the window has been freed")
	}
	return nil
}

// access returns the access to a target, opening it the first time.
func (w *Window) access(t Turn, rank int) *onesided.Access {
	x := &w.targets[rank]
	if x.access == nil {
		x.access = w.Open(t, rank)
		x.access.SetChecked(w.Check)
		x.place = len(w.touched)
		w.touched = append(w.touched, rank)
	}
	return x.access
}

// rankOf returns the rank that an access leads to.
func (w *Window) rankOf(a *onesided.Access) int {
	for _, rank := range w.touched {
		if w.targets[rank].access == a {
			return rank
		}
	}
	return mpierr.NoRank
}

// named returns err as the error of the call op at a target; with NoRank, at the rank that
// err itself concerns.
func named(op string, rank int, err error) error {
	if err == nil {
		return nil
	}
	return mpierr.Named(op, rank, err)
}

// failure returns the first error of an operation on a since the last call of failure.
// The error names op as its call, unless the target refused an operation: then it names
// that operation.
func failure(op string, rank int, a *onesided.Access) error {
	err := a.TakeError()
	if err == nil {
		return nil
	}
	var e *mpierr.Error
	if errors.As(err, &e) && e.Class != mpierr.ProcFailed {
		op = e.Op
	}
	return named(op, rank, err)
}
