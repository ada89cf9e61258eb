package rma

import (
	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// Put copies origin into the target's window (MPI_Put, section 11.3.1). It needs
// an epoch that gives access to target. origin may be changed once Put returns;
// the data is at the target after the next Flush, Unlock or other call that
// completes it. It does not wait for the target to do anything, nor for a connection; it
// blocks while there is no room to send, which Location.Within bounds. The target has a
// slice of what the origin has unless at says otherwise (see Location.As). Over memory that this process
// maps, origin may overlap the target as in Go's copy; docs/memory-model.md has the limits.
// Classes: ErrRank, ErrRMASync, ErrDisp, ErrRange, ErrWin,
// ErrProcFailed; with derived datatypes also ErrType, ErrCount and ErrArg, which
// Typed and As explain. Put fails with ErrAccess under a lock that the target has refused;
// without the right to write, the next Flush does (see Access).
func (w *Win) Put(origin buffer.Buffer, target int, at Location) error {
	return w.report(w.put(nil, origin, target, at))
}

// put is Put with a request r to follow it, or without one where r is nil. get,
// accumulate and so on relate to Get and Accumulate in the same way.
func (w *Win) put(r *onesided.Request, origin buffer.Buffer, target int, at Location) error {
	o := operation{Operation: epochs.Operation{Name: "put", Target: target}, at: at, align: 1}
	o.Code, o.Origin, o.Request = wire.CodePut, origin.Memory(), r
	if !origin.Plain() || at.typ != nil {
		return w.issueTyped(&o, &origin, &buffer.Buffer{})
	}
	o.span = len(o.Origin)
	return w.issue(&o, nil)
}

// Get copies from the target's window into result (MPI_Get, section 11.3.2).
// result holds the data after the next Flush, FlushLocal, Unlock or other call
// that completes it, and must be left alone until then. It blocks as Put does, and
// may overlap as there. Classes as for Put.
func (w *Win) Get(result buffer.Buffer, target int, at Location) error {
	return w.report(w.get(nil, result, target, at))
}

func (w *Win) get(r *onesided.Request, result buffer.Buffer, target int, at Location) error {
	o := operation{Operation: epochs.Operation{Name: "get", Target: target}, at: at, align: 1}
	o.Code, o.Result, o.Request = wire.CodeGet, result.Memory(), r
	if !result.Plain() || at.typ != nil {
		return w.issueTyped(&o, &buffer.Buffer{}, &result)
	}
	o.span = len(o.Result)
	return w.issue(&o, nil)
}

// Accumulate combines origin into the target's window with op, each element
// atomically (MPI_Accumulate, section 11.3.4). NoOp is not allowed. Elements must
// be aligned at the target. Accumulates from one origin to one target take effect
// in the order issued, unless the info key accumulate_ordering says otherwise.
// Derived datatypes must have elements of one predefined datatype. It blocks as Put
// does. Classes as for Put, and ErrOp, ErrType.
func (w *Win) Accumulate(origin buffer.Buffer, target int, at Location, op Op) error {
	return w.report(w.accumulate(nil, origin, target, at, op))
}

func (w *Win) accumulate(r *onesided.Request, origin buffer.Buffer, target int, at Location, op Op) error {
	const name = "accumulate"
	if op == NoOp {
		return newError(name, ErrOp, target, "no_op is for the calls that return a value")
	}
	o := operation{Operation: epochs.Operation{Name: name, Target: target}, at: at}
	o.Code, o.Op, o.Basic, o.Origin, o.Request = wire.CodeAccumulate, op, origin.Basic(), origin.Memory(), r
	if !origin.Plain() || at.typ != nil {
		return w.issueTyped(&o, &origin, &buffer.Buffer{})
	}
	if err := checkOp(name, target, op, o.Basic); err != nil {
		return err
	}
	o.span, o.align = len(o.Origin), o.Basic.Align()
	return w.issue(&o, nil)
}

// GetAccumulate is Accumulate and also returns the former values in result
// (MPI_Get_accumulate, section 11.3.4), which has as many elements of the same
// type as origin and overlaps it nowhere. With NoOp, origin is ignored: an atomic
// read. Classes as for Accumulate, and ErrArg where origin and result overlap, which
// is not looked for in derived datatypes.
func (w *Win) GetAccumulate(origin, result buffer.Buffer, target int, at Location, op Op) error {
	return w.report(w.getAccumulate(nil, origin, result, target, at, op))
}

func (w *Win) getAccumulate(r *onesided.Request, origin, result buffer.Buffer, target int, at Location, op Op) error {
	if !origin.Plain() || !result.Plain() || at.typ != nil {
		o := operation{Operation: epochs.Operation{Name: "get_accumulate", Target: target}, at: at, align: 1}
		o.Code, o.Op, o.Request = wire.CodeGetAccumulate, op, r
		return w.issueTyped(&o, &origin, &result)
	}
	return w.fetch(r, "get_accumulate", origin, result, target, at, op)
}

// FetchAndOp is GetAccumulate on a single element (MPI_Fetch_and_op, section
// 11.3.4), of a predefined datatype or a pair. Classes as for GetAccumulate.
func (w *Win) FetchAndOp(origin, result buffer.Buffer, target int, at Location, op Op) error {
	return w.report(w.fetchAndOp(nil, origin, result, target, at, op))
}

func (w *Win) fetchAndOp(r *onesided.Request, origin, result buffer.Buffer, target int, at Location, op Op) error {
	const name = "fetch_and_op"
	if !origin.Plain() || !result.Plain() || at.typ != nil {
		if op == NoOp {
			origin = buffer.Buffer{}
		}
		if err := onlyPredefined(name, target, at, origin, result); err != nil {
			return err
		}
	}
	if len(result.Memory()) != result.Basic().Size() {
		return newError(name, ErrCount, target, "the result has %d elements, not one", result.Len())
	}
	return w.fetch(r, name, origin, result, target, at, op)
}

// fetch issues what returns the former values of predefined datatypes.
func (w *Win) fetch(r *onesided.Request, name string, origin, result buffer.Buffer, target int, at Location, op Op) error {
	basic := result.Basic()
	if err := checkOp(name, target, op, basic); err != nil {
		return err
	}
	if op != NoOp {
		if origin.Basic() != basic {
			return newError(name, ErrType, target, "the origin is of %v, the result of %v", origin.Basic(), basic)
		}
		if len(origin.Memory()) != len(result.Memory()) {
			return newError(name, ErrCount, target, "%d elements for a result of %d", origin.Len(), result.Len())
		}
		if overlap(origin, result) {
			return notDisjoint(name, target)
		}
	}
	o := operation{Operation: epochs.Operation{Name: name, Target: target}, at: at, align: basic.Align()}
	o.Code, o.Op, o.Basic, o.Origin, o.Result, o.Request = wire.CodeGetAccumulate, op, basic, origin.Memory(), result.Memory(), r
	o.span = len(o.Result)
	return w.issue(&o, nil)
}

// CompareAndSwap replaces one element at the target by origin if it equals
// compare, atomically, and returns its former value in result
// (MPI_Compare_and_swap, section 11.3.4). All three are single elements of one
// type: an integer, bool or byte; origin and result do not overlap. Classes as for
// GetAccumulate.
func (w *Win) CompareAndSwap(origin, compare, result buffer.Buffer, target int, at Location) error {
	return w.report(w.compareAndSwap(nil, origin, compare, result, target, at))
}

func (w *Win) compareAndSwap(r *onesided.Request, origin, compare, result buffer.Buffer, target int, at Location) error {
	const name = "compare_and_swap"
	if !origin.Plain() || !compare.Plain() || !result.Plain() || at.typ != nil {
		if err := onlyPredefined(name, target, at, origin, compare, result); err != nil {
			return err
		}
	}
	b := result.Basic()
	switch {
	case !b.Comparable():
		return newError(name, ErrType, target, "%v cannot be compared and swapped", b)
	case origin.Basic() != b || compare.Basic() != b:
		return newError(name, ErrType, target, "origin, compare value and result are of different types")
	case len(origin.Memory()) != b.Size() || len(compare.Memory()) != b.Size() || len(result.Memory()) != b.Size():
		return newError(name, ErrCount, target, "origin, compare value and result must be one element each")
	case overlap(origin, result):
		return notDisjoint(name, target)
	}
	o := operation{Operation: epochs.Operation{Name: name, Target: target}, at: at, span: b.Size(), align: b.Align()}
	o.Code, o.Basic, o.Origin, o.Compare, o.Result, o.Request = wire.CodeCompareSwap, b, origin.Memory(), compare.Memory(), result.Memory(), r
	return w.issue(&o, nil)
}

func notDisjoint(name string, target int) error {
	return newError(name, ErrArg, target, "origin and result overlap: fetch into memory of its own")
}

func checkOp(name string, target int, op Op, b datatype.Basic) error {
	if op.Check(b) == 0 {
		return nil
	}
	return named(name, target, op.Defined(b))
}
