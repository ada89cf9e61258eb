package rma

import (
	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// badType stands for a datatype at the target that is none.
var badType datatype.Type

// As returns l with count entries of t there; displacement 0 of t is at l. Without As there
// is a slice of what the origin has, or for a get the result: of its Go type, or, where that is
// described by a derived datatype, of the elements one after the other. The signature of t must be that of the origin,
// or for a get that of the result. The side that is written to may be longer than the
// data: its signature then goes on, after whole entries if elements are of several
// kinds. The data must lie in the window. A call that is given it fails with ErrType if
// t is nil, not committed or of another signature, or if entries that are written to
// overlap; with ErrCount if count is negative or the data does not fit in the memory
// that it is written to; with ErrRange if the entries are not all inside the window.
func (l Location) As(count int, t *datatype.Type) Location {
	if t == nil {
		t = &badType
	}
	l.typ, l.count = t, count
	return l
}

// transfer is a call with derived datatypes.
type transfer struct {
	epochs.Derived
	lo int64 // the first byte at the target, from displacement 0
}

// local returns b as the engine knows it.
func local(b *buffer.Buffer) onesided.Local {
	mem := b.Memory()
	if b.Plain() || len(mem) == 0 {
		return onesided.Local{Mem: mem}
	}
	n, t := b.Entries()
	lo, _, _ := t.Bounds(n) // checked when b was made
	return onesided.Local{Mem: mem, Base: -lo, Type: t, Count: n}
}

// issueTyped checks and issues a call in which any datatype is derived, or that
// names the target's.
func (w *Win) issueTyped(o *operation, origin, result *buffer.Buffer) error {
	c, name, rank, at := &o.Call, o.Name, o.Target, &o.at
	// The side that is written to may be longer than the data.
	reads := c.Code == wire.CodeGet
	if c.Op == NoOp {
		reads, origin = true, &buffer.Buffer{}
	}
	if err := origin.Check(name, "origin", rank); err != nil {
		return err
	}
	if err := result.Check(name, "result", rank); err != nil {
		return err
	}
	y := transfer{Derived: epochs.Derived{Origin: local(origin), Result: local(result), Type: at.typ, Count: at.count}}
	if y.Type == nil {
		from := origin
		if reads {
			from = result
		}
		var err error
		if y.Count, y.Type, err = standing(name, rank, from); err != nil {
			return err
		}
	}
	if !y.Type.Committed() {
		return newError(name, ErrType, rank, "the target has no committed datatype: call its Commit")
	}
	lo, hi, err := y.Type.Bounds(y.Count)
	if err != nil {
		return named(name, rank, err)
	}
	y.lo = lo
	o.span, o.align = int(hi-lo), 1
	y.Size = y.Count * y.Type.Size()
	if !reads {
		n, t := origin.Entries()
		if err := fits(name, "target", rank, n, t, y.Count, y.Type); err != nil {
			return err
		}
		y.Size = n * t.Size()
	}
	if c.Code.Fetches() {
		from, t := y.Count, y.Type
		if !reads {
			from, t = origin.Entries()
		}
		n, into := result.Entries()
		if err := fits(name, "result", rank, from, t, n, into); err != nil {
			return err
		}
		if origin.Plain() && result.Plain() && overlap(*origin, *result) {
			return notDisjoint(name, rank)
		}
		if into.OverlapsSelf(n) {
			return newError(name, ErrType, rank, "%d entries of %v, the result, overlap: a byte is written to more than once", n, into)
		}
	}
	if c.Code != wire.CodeGet {
		if y.Type.OverlapsSelf(y.Count) {
			return newError(name, ErrType, rank, "%d entries of %v, the target, overlap: a byte is written to more than once", y.Count, y.Type)
		}
	}
	if c.Code.Row().Combines {
		basic, uniform := y.Type.UniformBasic()
		if !uniform && y.Size > 0 {
			return newError(name, ErrType, rank, "%v mixes elements of several predefined datatypes: an accumulate needs one", y.Type)
		}
		if uniform {
			if err := checkOp(name, rank, c.Op, basic); err != nil {
				return err
			}
			c.Basic, o.align = basic, basic.Align()
		}
	}
	if y.Size == 0 {
		o.span, y.lo = 0, 0
	}
	c.Origin, c.Result = nil, nil
	return w.issue(o, &y)
}

// standing returns what stands at the target for b where the call does not say: a slice of the
// same Go type, or the elements of a derived datatype without gaps.
func standing(name string, rank int, b *buffer.Buffer) (int, *datatype.Type, error) {
	n, t := b.Entries()
	if b.Plain() || t.OfGo() {
		return n, t, nil
	}
	basic, uniform := t.UniformBasic()
	switch {
	case uniform:
		return n * t.Size() / basic.Size(), basic.Type(), nil
	case n*t.Size() == 0:
		return 0, datatype.Byte, nil
	}
	return 0, nil, newError(name, ErrType, rank, "%v has elements of several predefined datatypes: say what is at the target, with At(disp).As(count, datatype)", t)
}

// fits returns an error unless n entries of t fit in those of into, side of a
// call: their signature is the same or goes on.
func fits(name, side string, rank, n int, t *datatype.Type, room int, into *datatype.Type) error {
	if datatype.SameSignature(n, t, room, into) {
		return nil
	}
	size, space := n*t.Size(), room*into.Size()
	basic, uniform := t.UniformBasic()
	intoBasic, intoUniform := into.UniformBasic()
	switch {
	case size == 0:
		return nil
	case uniform && intoUniform && basic == intoBasic:
		if size <= space {
			return nil
		}
	case space == 0:
	case size < space && size%into.Size() == 0 && datatype.SameSignature(n, t, size/into.Size(), into):
		return nil
	}
	if uniform && basic == intoBasic || t == into {
		return newError(name, ErrCount, rank, "%d bytes of data do not fit in the %s, which has %d", size, side, space)
	}
	return newError(name, ErrType, rank, "the signature of %d of %v is not that of %d of %v, the %s", n, t, room, into, side)
}

// onlyPredefined refuses what is not of a predefined datatype, in calls for one element.
func onlyPredefined(name string, rank int, at Location, buffers ...buffer.Buffer) error {
	for _, b := range buffers {
		if err := b.Check(name, "buffer", rank); err != nil {
			return err
		}
		if !b.Plain() {
			return newError(name, ErrType, rank, "a derived datatype where a predefined one is needed")
		}
	}
	if at.typ == nil {
		return nil
	}
	switch basic := buffers[len(buffers)-1].Basic(); {
	case at.typ != basic.Type():
		return newError(name, ErrType, rank, "the target is of %v, the result of %v", at.typ, basic)
	case at.count != 1:
		return newError(name, ErrCount, rank, "the target has %d elements, not one", at.count)
	}
	return nil
}
