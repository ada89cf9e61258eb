package rma

import (
	"math"
	"reflect"
	"sync"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/engine"
	"github.com/xdprma/xdprma/internal/wire"
)

// What is wrong with the arguments that a Buffer was made from stands in place of
// its datatype. The call that it is given to says so.
var (
	badType   datatype.Type // not committed, or none
	badCount  datatype.Type // negative, or too large
	badMemory datatype.Type // it does not hold the entries
	badStruct datatype.Type // a Go type that has no datatype
)

// Typed returns the buffer of count entries of t in mem, with displacement 0 of
// the first at mem[0]. mem is of a type that OfStructs takes; what t says of it
// counts alone. A call that is given the buffer fails with ErrType if t is nil or
// not committed, or T holds pointers; with ErrCount if count is negative or no
// memory could be so large; and with ErrArg if mem does not hold all the entries'
// data. The library reads or writes mem, and keeps it alive, until the operation
// completes; t may be freed once the call has returned.
func Typed[T any](mem []T, count int, t *datatype.Type) Buffer { return TypedAt(mem, 0, count, t) }

// TypedAt is Typed with displacement 0 at mem[origin], for datatypes with data at
// negative displacements; origin may lie outside of mem.
func TypedAt[T any](mem []T, origin, count int, t *datatype.Type) Buffer {
	if reflect.TypeFor[T]().Kind() > reflect.Complex128 && goType[T]() == &badStruct {
		return Buffer{typ: &badStruct}
	}
	size := int64(reflect.TypeFor[T]().Size())
	at := int64(origin) * size
	if size > 0 && at/size != int64(origin) {
		at = math.MaxInt64 // as far outside
	}
	return typedAt(bytesOf(mem), at, count, t)
}

func typedAt(mem []byte, origin int64, count int, t *datatype.Type) Buffer {
	if !t.Committed() {
		return Buffer{typ: &badType}
	}
	lo, hi, err := t.Bounds(count)
	switch {
	case err != nil:
		return Buffer{typ: &badCount, n: count}
	case lo == hi:
		mem = nil
	case origin < -lo || origin > int64(len(mem))-hi:
		return Buffer{typ: &badMemory, n: count}
	default:
		mem = mem[origin+lo : origin+hi]
	}
	if basic := t.Basic(); basic != 0 && lo == 0 && t.Contiguous() {
		return plain(mem, basic)
	}
	return Buffer{first: firstByte(mem), bytes: len(mem), typ: t, n: count}
}

// goTypes has the datatypes of Go types that have come up, badStruct if there is none.
var goTypes sync.Map // of reflect.Type to *datatype.Type

func goType[T any]() *datatype.Type {
	g := reflect.TypeFor[T]()
	known, ok := goTypes.Load(g)
	if !ok {
		t, err := datatype.FromGo[T]()
		if err != nil {
			t = &badStruct
		}
		known, _ = goTypes.LoadOrStore(g, t)
	}
	return known.(*datatype.Type)
}

// OfStructs returns the buffer that is the slice s of a Go struct, or of another
// type for which datatype.FromGo has a datatype; padding is not transferred. A
// call that is given it fails with ErrType if there is none: T has a field of no
// fixed size. To name the same datatype elsewhere, such as in Location.As, make
// another with datatype.FromGo.
func OfStructs[T any](s []T) Buffer {
	t := goType[T]()
	if t == &badStruct {
		return Buffer{typ: t}
	}
	return typedAt(bytesOf(s), 0, len(s), t)
}

// As returns l with count entries of t there, in place of what the origin has;
// displacement 0 of t is at l. The signature of t must be that of the origin, or
// for a get of the result, or it may go on where what is written to is longer than
// the data: there, after whole entries if elements are of several kinds. The data
// must lie in the window. A call that is given it fails with ErrType if t is nil,
// not committed or of another signature, or has bytes twice where it is written
// to; with ErrCount if count is negative or the data does not fit in what it is
// written to; with ErrRange if the entries are not all inside the window.
func (l Location) As(count int, t *datatype.Type) Location {
	if t == nil {
		t = &badType
	}
	l.typ, l.count = t, count
	return l
}

// transfer is a call with derived datatypes.
type transfer struct {
	origin, result engine.Local
	target         *datatype.Type
	count          int
	lo             int64 // the first byte at the target, from displacement 0
	size           int   // bytes of packed data
}

// entries returns the count and datatype of b.
func (b *Buffer) entries() (int, *datatype.Type) {
	if b.typ != nil {
		return b.n, b.typ
	}
	if b.n == 0 {
		return 0, datatype.Byte // the zero Buffer
	}
	return b.bytes / b.basic().Size(), b.basic().Type()
}

// local returns b as the engine knows it.
func (b *Buffer) local() engine.Local {
	if b.typ == nil || b.bytes == 0 {
		return engine.Local{Mem: b.mem()}
	}
	lo, _, _ := b.typ.Bounds(b.n) // checked when b was made
	return engine.Local{Mem: b.mem(), Base: -lo, Type: b.typ, Count: b.n}
}

// check returns the error of what is wrong with b by itself, side of a call.
func (b *Buffer) check(name, side string, rank int) error {
	switch b.typ {
	case nil:
		return nil
	case &badType:
		return newError(name, ErrType, rank, "the %s has no committed datatype", side)
	case &badStruct:
		return newError(name, ErrType, rank, "the %s is of a Go type without a datatype: datatype.FromGo says why", side)
	case &badCount:
		return newError(name, ErrCount, rank, "the %s cannot have %d entries", side, b.n)
	case &badMemory:
		return newError(name, ErrArg, rank, "the memory of the %s does not hold %d entries of its datatype", side, b.n)
	}
	if !b.typ.Committed() {
		return newError(name, ErrType, rank, "%v, the datatype of the %s, was freed", b.typ, side)
	}
	return nil
}

// issueTyped checks and issues a call in which any datatype is derived, or that
// names the target's.
func (w *Win) issueTyped(name string, c *engine.Call, origin, result *Buffer, rank int, at *Location) error {
	// What is written to may be longer than the data.
	reads, writes := c.Code == wire.CodeGet, c.Code == wire.CodePut || c.Code == wire.CodeAccumulate
	if c.Op == NoOp {
		reads, origin = true, &Buffer{}
	}
	if err := origin.check(name, "origin", rank); err != nil {
		return err
	}
	if err := result.check(name, "result", rank); err != nil {
		return err
	}
	y := transfer{origin: origin.local(), result: result.local(), target: at.typ, count: at.count}
	if y.target == nil {
		if y.count, y.target = origin.entries(); reads {
			y.count, y.target = result.entries()
		}
	}
	if !y.target.Committed() {
		return newError(name, ErrType, rank, "the target has no committed datatype")
	}
	lo, hi, err := y.target.Bounds(y.count)
	if err != nil {
		return named(name, rank, err)
	}
	y.lo = lo
	n, align := int(hi-lo), 1
	y.size = y.count * y.target.Size()
	if !reads {
		n, t := origin.entries()
		if err := fits(name, "target", rank, n, t, y.count, y.target); err != nil {
			return err
		}
		y.size = n * t.Size()
	}
	if !writes {
		from, t := y.count, y.target
		if !reads {
			from, t = origin.entries()
		}
		n, into := result.entries()
		if err := fits(name, "result", rank, from, t, n, into); err != nil {
			return err
		}
		if origin.typ == nil && result.typ == nil && origin.overlaps(result) {
			return notDisjoint(name, rank)
		}
		if into.OverlapsSelf(n) {
			return newError(name, ErrType, rank, "%d entries of %v, the result, have bytes twice", n, into)
		}
	}
	if c.Code != wire.CodeGet {
		if y.target.OverlapsSelf(y.count) {
			return newError(name, ErrType, rank, "%d entries of %v, the target, have bytes twice", y.count, y.target)
		}
	}
	if c.Code == wire.CodeAccumulate || c.Code == wire.CodeGetAccumulate {
		basic, uniform := y.target.UniformBasic()
		if !uniform && y.size > 0 {
			return newError(name, ErrType, rank, "%v has not elements of one predefined datatype", y.target)
		}
		if uniform {
			if err := checkOp(name, rank, c.Op, basic); err != nil {
				return err
			}
			c.Basic, align = basic, basic.Align()
		}
	}
	if y.size == 0 {
		n, y.lo = 0, 0
	}
	c.Origin, c.Result = nil, nil
	return w.issue(name, rank, at.disp, c, n, align, &y)
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

// single refuses what is not of a predefined datatype, in calls for one element.
func single(name string, rank int, at Location, buffers ...Buffer) error {
	for _, b := range buffers {
		if b.typ != nil {
			return newError(name, ErrType, rank, "a derived datatype where a predefined one is needed")
		}
	}
	if at.typ == nil {
		return nil
	}
	switch basic := buffers[len(buffers)-1].basic(); {
	case at.typ != basic.Type():
		return newError(name, ErrType, rank, "the target is of %v, the result of %v", at.typ, basic)
	case at.count != 1:
		return newError(name, ErrCount, rank, "the target has %d elements, not one", at.count)
	}
	return nil
}
