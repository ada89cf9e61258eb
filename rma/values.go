package rma

import (
	"context"
	"sync"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
)

// Fetch is WinOf.Fetch for a window of any form, whose displacement unit counts.
func Fetch[T datatype.Element](ctx context.Context, w *Win, value T, target int, at Location, op Op) (former T, err error) {
	return single[T](w).Fetch(ctx, value, target, at, op)
}

// Load is WinOf.Load for a window of any form, whose displacement unit counts.
func Load[T datatype.Element](ctx context.Context, w *Win, target int, at Location) (T, error) {
	return single[T](w).Load(ctx, target, at)
}

// Store is WinOf.Store for a window of any form, whose displacement unit counts.
func Store[T datatype.Element](ctx context.Context, w *Win, value T, target int, at Location) error {
	return single[T](w).Store(ctx, value, target, at)
}

// CompareAndSwap is WinOf.CompareAndSwap for a window of any form, whose displacement unit
// counts.
func CompareAndSwap[T datatype.Element](ctx context.Context, w *Win, old, new T, target int, at Location) (former T, swapped bool, err error) {
	return single[T](w).CompareAndSwap(ctx, old, new, target, at)
}

func single[T datatype.Element](w *Win) WinOf[T] {
	return WinOf[T]{Win: w, basic: datatype.BasicOf[T]()}
}

// Fetch combines value with the element at the target, and returns what was there before:
// FetchAndOp of one value, with the wait for its result, in an epoch of Lock or LockAll.
// With NoOp it is Load. It blocks until the result is here; ctx bounds all of that. If it ends
// first, the error has class ErrTimeout, and the operation may have taken effect. Other
// operations at the target go on, and it does not wait for them. With ProcNull it returns 0.
// Errors: as for Win.RfetchAndOp.
func (w WinOf[T]) Fetch(ctx context.Context, value T, target int, at Location, op Op) (former T, err error) {
	defer w.handle(&err)
	return w.fetchOne(ctx, value, target, at, op)
}

func (w WinOf[T]) fetchOne(ctx context.Context, value T, target int, at Location, op Op) (former T, err error) {
	c := cells.Get().(*cell)
	origin, result := operand[T](w.basic, &c.origin), operand[T](w.basic, &c.result)
	var none T
	origin[0], result[0] = value, none // which stays with ProcNull
	err = w.fetchAndOp(&c.request, w.over(origin), w.over(result), target, at.awaited(ctx), op)
	return take(c, result, err)
}

// Load returns the element at the target, in one piece even while others change it
// atomically. It is Fetch with NoOp.
func (w WinOf[T]) Load(ctx context.Context, target int, at Location) (value T, err error) {
	defer w.handle(&err)
	return w.fetchOne(ctx, value, target, at, NoOp)
}

// Store replaces the element at the target, in one piece, and returns when that has happened.
// It is Fetch with Replace. A Load or Fetch of this rank that follows is ordered after it, as all
// accumulates of one origin at one element are. A Read or Put takes a Flush between: MPI orders them
// by that alone, and checking mode reports them.
func (w WinOf[T]) Store(ctx context.Context, value T, target int, at Location) error {
	_, err := w.fetchOne(ctx, value, target, at, Replace)
	return w.report(err)
}

// CompareAndSwap stores new in the element at the target if it equals old, atomically. It
// returns what was there before, and whether that was old. It is Win.CompareAndSwap of one
// value with the wait for its result; for the rest see Fetch.
func (w WinOf[T]) CompareAndSwap(ctx context.Context, old, new T, target int, at Location) (former T, swapped bool, err error) {
	defer w.handle(&err)
	c := cells.Get().(*cell)
	origin, compare, result := operand[T](w.basic, &c.origin), operand[T](w.basic, &c.compare), operand[T](w.basic, &c.result)
	var none T
	origin[0], compare[0], result[0] = new, old, none
	err = w.compareAndSwap(&c.request, w.over(origin), w.over(compare), w.over(result), target, at.awaited(ctx))
	swapped = err == nil && target != ProcNull && string(memoryOf(compare)) == string(memoryOf(result))
	former, err = take(c, result, err)
	return former, swapped, err
}

// Read is Get with the wait for its data, in an epoch of Lock or LockAll. It blocks until into
// is filled; if ctx ends first, into is to be left alone until the next call that completes
// what was issued to the target. Other operations at the target go on. Errors: as for
// Win.Rget. After a Store, Fetch or CompareAndSwap of the same element it takes a Flush; Load takes none.
func (w WinOf[T]) Read(ctx context.Context, into []T, target int, at Location) error {
	c := cells.Get().(*cell)
	err := w.get(&c.request, w.over(into), target, at.awaited(ctx))
	_, err = take(c, into[:0], err)
	return w.report(err)
}

// PutValue is Put of one value, which is copied.
func (w WinOf[T]) PutValue(value T, target int, at Location) error {
	c := cells.Get().(*cell)
	defer cells.Put(c) // a call that has no result has no use of it any more
	origin := operand[T](w.basic, &c.origin)
	origin[0] = value
	return w.report(w.put(nil, w.over(origin), target, at))
}

// Update is Accumulate of one value, which is copied.
func (w WinOf[T]) Update(value T, target int, at Location, op Op) error {
	c := cells.Get().(*cell)
	defer cells.Put(c)
	origin := operand[T](w.basic, &c.origin)
	origin[0] = value
	return w.report(w.accumulate(nil, w.over(origin), target, at, op))
}

// cell is the memory of a call's operands and result, each large enough for any element,
// and what follows the call.
type cell struct {
	origin, compare, result [2]uint64
	request                 onesided.Request
}

var cells = sync.Pool{New: func() any { return new(cell) }}

// take returns the result in c. After an error the library may still write to it.
func take[T any](c *cell, result []T, err error) (former T, _ error) {
	if err != nil {
		return former, err
	}
	if len(result) > 0 {
		former = result[0]
	}
	c.request = onesided.Request{}
	cells.Put(c)
	return former, nil
}
