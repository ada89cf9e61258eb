package rma

import (
	"context"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
)

// Buffer is memory of the origin with the type of its elements: the triple of
// address, count and datatype of the standard's calls. Make it with Of, Value,
// Bytes, OfStructs or Typed, which are those of package comm; the zero value is empty.
type Buffer = comm.Buffer

// Of returns the buffer that is the slice s. The library reads or writes s, and
// keeps it alive, until the operation completes. See datatype.Pair for the alignment
// of pairs in a window.
func Of[T datatype.Element](s []T) Buffer { return comm.Of(s) }

// Value returns the buffer that is the single element *p. A call that is given it fails with
// ErrArg if p is nil.
func Value[T datatype.Element](p *T) Buffer { return comm.Value(p) }

// Bytes returns the buffer that is b, as elements of type byte.
func Bytes(b []byte) Buffer { return comm.Bytes(b) }

// Typed returns the buffer of count entries of t in mem, with displacement 0 of the
// first at mem[0]. A call that is given the buffer fails with ErrType, ErrCount or
// ErrArg for the reasons that comm.Typed lists.
func Typed[T any](mem []T, count int, t *datatype.Type) Buffer { return comm.Typed(mem, count, t) }

// TypedAt is Typed with displacement 0 at mem[origin], for datatypes with data at
// negative displacements; origin may lie outside of mem.
func TypedAt[T any](mem []T, origin, count int, t *datatype.Type) Buffer {
	return comm.TypedAt(mem, origin, count, t)
}

// OfStructs returns the buffer that is the slice s of a Go struct, or of another
// type for which datatype.FromGo has a datatype; see comm.OfStructs. To name the same
// datatype in Location.As, make another with datatype.FromGo.
func OfStructs[T any](s []T) Buffer { return comm.OfStructs(s) }

// Location is a place in the target's window and, where As was called, what is
// there.
type Location struct {
	disp  int64
	typ   *datatype.Type // nil: what the origin has
	count int
	ctx   context.Context // bounds the wait for room; nil: nothing does
}

// At returns the place that lies disp displacement units of the target from the
// start of its window.
func At(disp int64) Location { return Location{disp: disp} }

// Within bounds the wait for room to send by ctx. If ctx ends, the call fails with
// ErrTimeout, and part of it may still take effect. Leave its result alone until the next
// call that completes what was issued to the target. Without Within a call waits for as long
// as the target lives and does not take what was issued before.
func (l Location) Within(ctx context.Context) Location {
	l.ctx = ctx
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
