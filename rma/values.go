package rma

import (
	"context"
	"sync"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
)

// Fetch combines value with the element at the target, and returns what was there before:
// FetchAndOp of one value, with the wait for its result, in an epoch of Lock or LockAll.
// With NoOp it is Load. It blocks until the result is here; ctx bounds all of that. If it ends
// first, the error has class ErrTimeout, and the operation may have taken effect. Other
// operations at the target go on, and it does not wait for them. Errors: as for RfetchAndOp.
func Fetch[T datatype.Element](ctx context.Context, w *Win, op Op, value T, target int, at Location) (former T, err error) {
	c := cells.Get().(*cell)
	origin, _, result := operandsOf[T](c)
	*origin = value
	if err = w.fetchAndOp(&c.request, buffer.Value(origin), buffer.Value(result), target, at.Within(ctx), op); err == nil {
		err = w.awaitOwn(ctx, "fetch", target, &c.request)
	}
	return take(c, result, w.report(err))
}

// Load returns the element at the target, in one piece even while others change it
// atomically. It is Fetch with NoOp.
func Load[T datatype.Element](ctx context.Context, w *Win, target int, at Location) (T, error) {
	var none T
	return Fetch(ctx, w, NoOp, none, target, at)
}

// Swap stores value in the element at the target if it equals compare, and returns what was
// there before: compare, if it was replaced. It is CompareAndSwap of one value with the wait
// for its result; for the rest see Fetch.
func Swap[T datatype.Element](ctx context.Context, w *Win, compare, value T, target int, at Location) (former T, err error) {
	c := cells.Get().(*cell)
	origin, other, result := operandsOf[T](c)
	*origin, *other = value, compare
	if err = w.compareAndSwap(&c.request, buffer.Value(origin), buffer.Value(other), buffer.Value(result), target, at.Within(ctx)); err == nil {
		err = w.awaitOwn(ctx, "swap", target, &c.request)
	}
	return take(c, result, w.report(err))
}

// awaitOwn waits for the one operation that r follows, and returns its error.
func (w *Win) awaitOwn(ctx context.Context, name string, target int, r *onesided.Request) error {
	if e := w.poller.Lock(); target != ProcNull {
		e.FlushUnmarked(w.epochs.Opened(target)) // asks for a prompt answer
	}
	r.Waiting(1)
	err := w.poller.WaitLocked(ctx, r)
	r.Waiting(-1)
	if err != nil {
		return named(name, target, err)
	}
	return named(name, target, r.Err())
}

// cell is the memory of a call's operands and result, each large enough for any element,
// and what follows the call.
type cell struct {
	origin, compare, result [2]uint64
	request                 onesided.Request
}

var cells = sync.Pool{New: func() any { return new(cell) }}

// take returns the result in c. After an error the library may still write to it.
func take[T datatype.Element](c *cell, result *T, err error) (former T, _ error) {
	if err != nil {
		return former, err
	}
	former = *result
	c.request = onesided.Request{}
	cells.Put(c)
	return former, nil
}
