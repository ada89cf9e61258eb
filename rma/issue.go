package rma

import (
	"context"
	"sync"

	"github.com/xdprma/xdprma/internal/device/poller"
	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

// operation is a communication call with what the origin checks.
type operation struct {
	epochs.Operation
	at    Location
	span  int // bytes from the first to the last that it touches at the target
	align int // the address of the first must be a multiple of it
}

// issue checks an operation against what the origin knows, and carries it out. y is set for
// derived datatypes.
func (w *Win) issue(o *operation, y *transfer) error {
	if o.at.awaits && o.at.ctx == nil {
		return named(o.Name, o.Target, poller.ErrNoContext)
	}
	defer w.poller.Guard()
	t := w.turn()
	if err := w.admit(o, y); err != nil || o.span == 0 && o.Notify == 0 {
		w.poller.UnlockQuiet()
		return err
	}
	r := o.Request
	var derived *epochs.Derived
	if o.span == 0 { // there is nothing but the notification
		o.Call = onesided.Call{Code: wire.CodeNotify, Notify: o.Notify, Order: o.Order}
	} else if y != nil {
		derived = &y.Derived
	}
	status := w.epochs.Issue(t, &o.Operation, derived)
	for status == epochs.Waits {
		ctx := o.at.ctx
		if ctx == nil {
			ctx = context.Background()
		}
		err := w.poller.WaitLocked(ctx, o.Until())
		t = w.turn()
		if err == nil {
			err = w.open(o.Name)
		}
		if err != nil {
			status = w.epochs.GiveUp(t, &o.Operation, err)
		} else {
			status = w.epochs.Issue(t, &o.Operation, derived)
		}
	}
	switch {
	case status == epochs.Acts:
		w.act(o, derived)
	case o.at.awaits && o.Err() == nil:
		return w.await(t, o, r)
	default:
		w.poller.Unlock()
		return o.Err()
	}
	if o.at.awaits {
		return named(o.Name, o.Target, r.Err())
	}
	return nil
}

// await waits for an operation that was issued in this turn, which it ends, and that r follows. It returns
// the operation's error.
func (w *Win) await(t epochs.Turn, o *operation, r *onesided.Request) error {
	if !r.Met() {
		t.FlushUnmarked(o.Access) // asks for a prompt answer
	}
	r.Waiting(1)
	err := w.poller.WaitLocked(o.at.ctx, r)
	r.Waiting(-1)
	if err == nil {
		err = r.Err()
	}
	return named(o.Name, o.Target, err)
}

// directs are used again by calls with derived datatypes.
var directs = sync.Pool{New: func() any { return &onesided.Direct{} }}

// act unlocks the engine and lets an operation act on memory that this process maps.
func (w *Win) act(o *operation, y *epochs.Derived) {
	w.acting.Add(1)
	defer w.acting.Add(-1)
	w.poller.UnlockQuiet()
	awaited := false
	if y == nil {
		awaited = o.Act(nil, nil)
	} else {
		d := directs.Get().(*onesided.Direct)
		awaited = o.Act(y, d)
		directs.Put(d)
	}
	if awaited {
		e := w.poller.Lock()
		e.Rouse(o.Access)
		w.poller.Tick()
		w.poller.Unlock()
	}
}

// admit refuses what the origin can see to be wrong, and completes o. One that touches
// nothing has a span of 0.
func (w *Win) admit(o *operation, y *transfer) error {
	if err := w.open(o.Name); err != nil {
		return err
	}
	if o.Target == ProcNull {
		o.span = 0
		return w.epochs.MayAccessNone(o.Name, o.Request != nil)
	}
	if err := w.epochs.MayAccess(o.Name, o.Target, o.Request != nil); err != nil {
		return err
	}
	t := &w.targets[o.Target]
	disp, class := windows.ByteDisp(o.at.disp, t.dispUnit)
	if class != 0 && w.own.Flavor() == window.FlavorDynamic {
		disp, class = uint64(o.at.disp), 0 // any address may be asked for: the target knows
	}
	if class != 0 {
		return newError(o.Name, class, o.Target, "displacement %d with a unit of %d bytes", o.at.disp, t.dispUnit)
	}
	first, n := disp, uint64(o.span)
	if y != nil {
		first += uint64(y.lo) // far beyond any window if before its start
	}
	if n > t.size || first > t.size-n {
		return newError(o.Name, ErrRange, o.Target, "bytes %d to %d of a window of %d bytes", int64(first), int64(first)+int64(n), t.size)
	}
	if first%uint64(o.align) != 0 && w.aligned() {
		return newError(o.Name, ErrDisp, o.Target, "byte displacement %d is not a multiple of %d, the element's alignment", first, o.align)
	}
	o.Disp, o.Memory, o.Order = disp, t.mapped, w.order()
	if at := &o.at; at.notify {
		if err := t.checkCounter(o.Name, o.Target, at.counter); err != nil {
			return err
		}
		o.Notify = onesided.CounterAt(at.counter)
	}
	w.epochs.Used(o.Target)
	return nil
}

// order returns which operations the hints have take effect in the order issued.
func (w *Win) order() onesided.Order {
	switch {
	case w.hints.Ordered:
		return onesided.OrderAll
	case w.hints.Ordering == windows.OrderNone:
		return onesided.OrderNone
	}
	return onesided.OrderAccumulates
}

// aligned reports whether windows are known to start at aligned addresses.
func (w *Win) aligned() bool {
	switch w.own.Flavor() {
	case window.FlavorCreate:
		return false
	case window.FlavorShared:
		return !w.host.dense
	}
	return true
}
