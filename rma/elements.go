package rma

import (
	"context"
	"math"
	"reflect"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/window"
)

// WinOf is a window of elements of type T: the calls of Win with less to type. Memory is a
// slice, displacements count elements, and values need no buffer. T is a number, a bool, a
// datatype.Pair, or an array or struct of such; the calls that combine and compare elements
// take those that are one predefined datatype, and the others fail with ErrType or ErrCount.
//
// It is a Win as well, and has all of its calls: go doc rma.Win.Lock and the like document
// synchronisation, notifications and Free. The calls on buffers are w.Win.Put and so on. AllocateOf, AllocateSharedOf and CreateOf make it; View makes one of any window.
type WinOf[T any] struct {
	*Win
	basic datatype.Basic // that all of a T is of; 0 if that is not so
}

// AllocateOf is Allocate of n elements at this rank, aligned for all calls.
func AllocateOf[T any](ctx context.Context, c *comm.Comm, n int, info ...Info) (WinOf[T], error) {
	size, unit, fault := extent[T](n)
	return elements[T](create(ctx, c, window.FlavorAllocate, nil, size, unit, info, fault))
}

// AllocateSharedOf is AllocateShared of n elements at this rank.
func AllocateSharedOf[T any](ctx context.Context, c *comm.Comm, n int, info ...Info) (WinOf[T], error) {
	size, unit, fault := extent[T](n)
	return elements[T](create(ctx, c, window.FlavorShared, nil, size, unit, info, fault))
}

// CreateOf is Create on the memory of mem; see MakeSlice.
func CreateOf[T any](ctx context.Context, c *comm.Comm, mem []T, info ...Info) (WinOf[T], error) {
	size, unit, fault := extent[T](len(mem))
	return elements[T](create(ctx, c, window.FlavorCreate, memoryOf(mem), size, unit, info, fault))
}

// View returns w as a window of elements of type T. Displacements count in the unit that the
// target chose: in elements only if that is the size of T. Of a dynamic window they are
// addresses. If T has no datatype, as types with pointers, the calls fail with ErrType, and Memory
// panics.
func View[T any](w *Win) WinOf[T] {
	basic, _ := kindOf[T]() // the calls say what is wrong
	return WinOf[T]{Win: w, basic: basic}
}

func elements[T any](w *Win, err error) (WinOf[T], error) {
	if err != nil {
		return WinOf[T]{}, err
	}
	return View[T](w), nil
}

// Dup is Win.Dup, which returns a window of the same elements.
func (w WinOf[T]) Dup(ctx context.Context, info ...Info) (_ WinOf[T], err error) {
	defer w.handle(&err)
	return elements[T](w.dup(ctx, merge(info)))
}

// kindOf returns the predefined datatype that all of a T is of, 0 if that is not so. It fails
// if T has no datatype.
func kindOf[T any]() (datatype.Basic, error) {
	b := buffer.OfStructs([]T(nil))
	if b.Check("window create", "window", NoRank) == nil {
		return b.Basic(), nil
	}
	_, why := datatype.FromGo[T]()
	return 0, newError("window create", ErrType, NoRank, "a window cannot hold elements of type %v: %w", reflect.TypeFor[T](), why)
}

// extent returns the bytes of n elements and of one, or why there can be no window of them.
func extent[T any](n int) (size, unit int, fault error) {
	var t T
	unit = sizeOf[T]()
	_, fault = kindOf[T]()
	switch {
	case fault != nil:
	case unit == 0:
		fault = newError("window create", ErrType, NoRank, "elements of type %T have no bytes", t)
	case n < 0 || n > math.MaxInt/unit:
		fault = newError("window create", ErrSize, NoRank, "there cannot be %d elements of %d bytes", n, unit)
	}
	if fault != nil {
		return 0, 1, fault
	}
	return n * unit, unit, nil
}

// over returns the buffer that is s.
func (w WinOf[T]) over(s []T) buffer.Buffer {
	if w.basic != 0 {
		return buffer.Elements(memoryOf(s), w.basic)
	}
	return buffer.OfStructs(s)
}

// Memory returns the memory that this rank exposes, nil once the window is freed; see
// Win.Memory. Of a View it panics if the memory is not aligned for T, or T has no datatype, as
// types with pointers.
func (w WinOf[T]) Memory() []T {
	if w.basic == 0 {
		mustBePlain[T]()
	}
	return sliceOf[T](w.Win.Memory())
}

// Shared returns the memory of a rank's window as this process can load and store it, nil
// where it cannot; see Win.SharedQuery, whose errors it has.
func (w WinOf[T]) Shared(rank int) ([]T, error) {
	s, err := w.shared(rank)
	if err == nil && w.basic == 0 {
		_, err = kindOf[T]()
	}
	if err != nil {
		return nil, w.report(err)
	}
	return sliceOf[T](s.Memory), nil
}

// Put is Win.Put of values.
func (w WinOf[T]) Put(values []T, target int, at Location) error {
	return w.report(w.put(nil, w.over(values), target, at))
}

// Get is Win.Get into a slice, which has the values after the next call that completes it.
func (w WinOf[T]) Get(into []T, target int, at Location) error {
	return w.report(w.get(nil, w.over(into), target, at))
}

// Accumulate is Win.Accumulate of values.
func (w WinOf[T]) Accumulate(values []T, target int, at Location, op Op) error {
	return w.report(w.accumulate(nil, w.over(values), target, at, op))
}

// GetAccumulate is Win.GetAccumulate of values, with the former ones in into.
func (w WinOf[T]) GetAccumulate(values, into []T, target int, at Location, op Op) error {
	return w.report(w.getAccumulate(nil, w.over(values), w.over(into), target, at, op))
}

// Rget is Win.Rget into a slice, which has the values once the request has completed.
func (w WinOf[T]) Rget(into []T, target int, at Location) (_ *comm.Request, err error) {
	defer w.handle(&err)
	return w.begin("rget", target, func(r *onesided.Request) error { return w.get(r, w.over(into), target, at) })
}
