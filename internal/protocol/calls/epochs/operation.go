package epochs

import (
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/mpierr"
)

// Operation is a communication call on its way out. It is a value, which whoever makes the
// call keeps until it is over. MayAccess must have said that it may be made, and Used have
// been called.
type Operation struct {
	onesided.Call                 // Issue sets Access and Typed
	Name          string          // of the call, as errors name it
	Target        int             // which rank of the window
	Memory        *windows.Window // where this process maps the target's memory; nil: it does not

	until Condition
	err   error
}

// Derived is what an operation with derived datatypes has in place of Origin and Result:
// the arguments of onesided.Operations.Typed.
type Derived struct {
	Origin, Result onesided.Local
	Type           *datatype.Type // at the target
	Count          int            // entries of it
	Size           int            // bytes of packed data
}

// Until returns the condition that the operation waits for.
func (o *Operation) Until() Condition { return o.until }

// Err returns why an operation that is over has failed, or nil. The next call that completes
// the operation tells what went wrong at the target.
func (o *Operation) Err() error { return o.err }

// Issue does what the operation can do now: it is Step of communication calls. y is nil
// without derived datatypes.
func (w *Window) Issue(t Turn, o *Operation, y *Derived) Status {
	if w.freed {
		return w.GiveUp(t, o, w.Usable(o.Name))
	}
	a, until := w.mayIssue(t, o.Target)
	if until != nil {
		o.until = until
		return Waits
	}
	if o.Access == nil {
		o.Access = a
		if o.Memory != nil && (o.Basic.Size() <= 8 || a.Local()) && t.Direct(a) {
			t.ExpectTarget(a)
			return Acts
		}
		if y != nil {
			o.Typed = t.Typed(&y.Origin, &y.Result, y.Type, y.Count, y.Size)
		}
	}
	done, err := t.Issue(&o.Call)
	if done || err != nil {
		o.err = named(o.Name, o.Target, err)
		return Over
	}
	o.until = (*onesided.RoomWait)(a)
	return Waits
}

// Act lets an operation that Acts act on the target's memory, outside of a turn. Where
// derived datatypes are used it needs d. Then the operation is over. awaited says that the target is to look for those who
// wait for the notification: see onesided.Origin.Rouse.
func (o *Operation) Act(y *Derived, d *onesided.Direct) (awaited bool) {
	var class mpierr.Class
	if y == nil {
		class = onesided.Act(&o.Call, o.Memory)
	} else {
		class = d.ActTyped(&o.Call, o.Memory, &y.Origin, &y.Result, y.Type, y.Count, y.Size)
	}
	if class != mpierr.Success {
		o.Access.Refused(&o.Call, class)
		return false
	}
	return o.Count(o.Memory)
}

// GiveUp ends an operation that waits, because of why. Any number of its parts, from the
// first on, may have been issued and take effect like any operation. Its result is not
// touched once what was issued to the target is complete.
func (w *Window) GiveUp(t Turn, o *Operation, why error) Status {
	if o.Access != nil {
		t.Drop(&o.Call)
	}
	o.err = named(o.Name, o.Target, why)
	return Over
}
