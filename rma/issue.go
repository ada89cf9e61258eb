package rma

import (
	"context"
	"sync"

	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/window"
)

// operation is a communication call on its way out.
type operation struct {
	onesided.Call
	name   string
	target int
	at     Location
	span   int // bytes from the first to the last that it touches at the target
	align  int // the address of the first must be a multiple of it
}

// issue checks an operation against what the origin knows, and sends it. y is set for derived
// datatypes.
func (w *Win) issue(o *operation, y *transfer) error {
	t := w.turn()
	if err := w.admit(o, y); err != nil || o.span == 0 {
		w.poller.UnlockQuiet()
		return err
	}
	for first := true; ; {
		a, until := w.epochs.Access(t, o.target)
		if until == nil {
			o.Access = a
			if first && w.direct(t, o, y) {
				return nil
			}
			first = false
			done, err := t.Issue(&o.Call)
			if done || err != nil {
				w.poller.Unlock()
				return named(o.name, o.target, err)
			}
			until = (*onesided.RoomWait)(a)
		}
		var err error
		if t, err = w.awaitRoom(o, until); err != nil {
			return err
		}
	}
}

// awaitRoom waits with the engine unlocked, and returns with it locked unless it fails.
func (w *Win) awaitRoom(o *operation, until epochs.Condition) (epochs.Turn, error) {
	ctx := o.at.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	err := w.poller.WaitLocked(ctx, until)
	t := w.turn()
	if err != nil {
		err = named(o.name, o.target, err)
	} else {
		err = w.usable(o.name)
	}
	if err == nil {
		return t, nil
	}
	if o.Access != nil {
		t.Drop(&o.Call)
	}
	w.poller.Unlock()
	return t, err
}

// direct prepares an operation that may act now, and lets it act where the target's memory
// is that of this process: then it reports true, and has unlocked the engine.
func (w *Win) direct(t epochs.Turn, o *operation, y *transfer) bool {
	d := w.targets[o.target].direct
	if d != nil && (o.Basic.Size() <= 8 || o.Access.Local()) && t.Direct(o.Access) {
		t.Reach(o.Access)
		w.acting.Add(1)
		w.poller.UnlockQuiet()
		w.act(d, &o.Call, y)
		w.acting.Add(-1)
		return true
	}
	if y != nil {
		o.Typed = t.Typed(&y.origin, &y.result, y.target, y.count, y.size)
	}
	o.Relaxed = w.hints.Ordering == window.OrderNone
	return false
}

// directs are used again by calls with derived datatypes.
var directs = sync.Pool{New: func() any { return &onesided.Direct{} }}

// act lets a call act at once on memory that this process maps.
func (w *Win) act(target *window.Window, c *onesided.Call, y *transfer) {
	var class Class
	if y == nil {
		class = onesided.Act(c, target)
	} else {
		d := directs.Get().(*onesided.Direct)
		class = d.ActTyped(c, target, &y.origin, &y.result, y.target, y.count, y.size)
		directs.Put(d)
	}
	if class != 0 {
		c.Access.Refused(c, class)
	}
}

// admit refuses what the origin can see to be wrong, and completes o. One that touches
// nothing has a span of 0.
func (w *Win) admit(o *operation, y *transfer) error {
	if err := w.open(o.name); err != nil {
		return err
	}
	if o.target == ProcNull {
		o.span = 0
		return w.epochs.MayAccessNone(o.name, o.Request != nil)
	}
	if err := w.epochs.MayAccess(o.name, o.target, o.Request != nil); err != nil {
		return err
	}
	t := &w.targets[o.target]
	disp, class := window.ByteDisp(o.at.disp, t.dispUnit)
	if class != 0 && w.own.Flavor() == window.FlavorDynamic {
		disp, class = uint64(o.at.disp), 0 // any address may be asked for: the target knows
	}
	if class != 0 {
		return newError(o.name, class, o.target, "displacement %d with a unit of %d bytes", o.at.disp, t.dispUnit)
	}
	first, n := disp, uint64(o.span)
	if y != nil {
		first += uint64(y.lo) // far beyond any window if before its start
	}
	if n > t.size || first > t.size-n {
		return newError(o.name, ErrRange, o.target, "bytes %d to %d of a window of %d bytes", int64(first), int64(first)+int64(n), t.size)
	}
	if first%uint64(o.align) != 0 && w.aligned() {
		return newError(o.name, ErrDisp, o.target, "byte displacement %d is not a multiple of %d, the element's alignment", first, o.align)
	}
	o.Disp = disp
	w.epochs.Used(o.target)
	return nil
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
