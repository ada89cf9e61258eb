package rma

import (
	"context"

	"github.com/xdprma/xdprma/datatype"
)

// Location is a place in the target's window and, where As was called, what is
// there.
type Location struct {
	disp    int64
	typ     *datatype.Type // nil: what the origin has
	count   int
	ctx     context.Context // bounds the wait for room; nil: nothing does
	notify  bool            // counter counts up
	awaits  bool            // the call waits for its operation, within ctx; it follows it by a request
	counter int
}

// At returns the place that lies disp displacement units of the target from the
// start of its window.
func At[I Integer](disp I) Location { return Location{disp: int64(disp)} }

// Integer is the set of types that At takes.
type Integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

// Within bounds the wait for room to send by ctx. If ctx ends, the call fails with
// ErrTimeout, and part of it may still take effect. Leave its result alone until the next
// call that completes what was issued to the target. Without Within a call waits for as long
// as the target lives and does not take what was issued before.
func (l Location) Within(ctx context.Context) Location {
	l.ctx = ctx
	return l
}

// awaited is Within for a call that waits for its operation.
func (l Location) awaited(ctx context.Context) Location {
	l.ctx, l.awaits = ctx, true
	return l
}

// Notify has a counter of the target's window count up by one, once the call has acted there: what was
// put or combined is visible, and what a get or fetch reads has been read (as in the proposals for
// notified operations in mpi-forum/mpi-issues 59). The target waits for that by
// Win.WaitNotified. A call that moves no data counts, too. A call that fits a frame and that the target refuses does
// not count. A longer one may count although it is refused, but for the last part of a put or accumulate: the
// flush says so. The counters are numbered from 0; the info key
// xdprma_counters, see Counters, has each rank say how many its window has. If there is no such counter,
// the call fails with ErrArg.
//
// It leaves as any call does, with the next call of this rank that waits, or after 5 ms at the latest:
// FlushLocal has it leave at once.
func (l Location) Notify(counter int) Location {
	l.notify, l.counter = true, counter
	return l
}

// Op is a reduction operator of the accumulate calls (section 11.3.4).
type Op = datatype.Op

// The operators.
const (
	Sum     = datatype.Sum
	Prod    = datatype.Prod
	Min     = datatype.Min
	Max     = datatype.Max
	LAnd    = datatype.LAnd
	LOr     = datatype.LOr
	LXor    = datatype.LXor
	BAnd    = datatype.BAnd
	BOr     = datatype.BOr
	BXor    = datatype.BXor
	Replace = datatype.Replace // the new value replaces the old one
	NoOp    = datatype.NoOp    // nothing changes: an atomic read
	MinLoc  = datatype.MinLoc  // of pairs: the one with the smaller value
	MaxLoc  = datatype.MaxLoc  // of pairs: the one with the larger value
)
