// Package buffer describes memory that calls read or write. The calls of rma.Win take a
// Buffer, and so do those methods of comm.Comm whose names end in Buffer.
//
// Of is a slice of numbers, Value a single one, and OfStructs a slice of structs. Typed is memory
// of which a datatype says what is data, such as a column of a matrix. Making a Buffer copies
// nothing. The call that is given it says what is wrong with it.
package buffer

import (
	"math"
	"reflect"
	"sync"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/mpierr"
)

// Buffer is memory with the type of its elements: the triple of address, count and
// datatype of the standard's calls. Make it with Of, Value, Bytes, OfStructs or
// Typed; the zero value is empty. Messages and collectives take it where the elements
// are not a slice of a predefined datatype, and so do the calls of package rma.
//
// Beside its other errors, a call that is given a Buffer fails with the classes that
// Typed names, and with ErrType if it writes to the buffer, and its entries overlap.
type Buffer struct {
	// Four words, which a call is given in registers.
	first *byte          // of a derived datatype: the first byte of data
	bytes int            // of a derived datatype: to the last byte of data
	typ   *datatype.Type // nil where the memory is elements of basic without gaps
	n     int            // entries of typ, or the code of basic
}

// A Buffer made from wrong arguments has one of these in place of its datatype. The call
// that the Buffer is given to then says what is wrong.
var (
	badType   datatype.Type // not committed, or none
	badCount  datatype.Type // negative, or too large
	badMemory datatype.Type // it does not hold the entries
	badStruct datatype.Type // a Go type that has no datatype
	badValue  datatype.Type // a pointer to an element that is nil
)

func plain(mem []byte, basic datatype.Basic) Buffer {
	return Buffer{first: firstByte(mem), bytes: len(mem), n: int(basic)}
}

// Of returns the buffer that is the slice s. The library reads or writes s, and
// keeps it alive, until the operation completes. See datatype.Pair for the alignment
// of pairs in a window.
func Of[T datatype.Element](s []T) Buffer { return plain(bytesOf(s), datatype.BasicOf[T]()) }

// Value returns the buffer that is the single element *p. A call that is given it fails with
// class ErrArg if p is nil.
func Value[T datatype.Element](p *T) Buffer {
	if p == nil {
		return Buffer{typ: &badValue}
	}
	return plain(bytesOfValue(p), datatype.BasicOf[T]())
}

// Elements returns the buffer that is mem, as elements of the predefined datatype basic.
func Elements(mem []byte, basic datatype.Basic) Buffer { return plain(mem, basic) }

// Bytes returns the buffer that is b, as elements of type byte.
func Bytes(b []byte) Buffer { return plain(b, datatype.BasicByte) }

// Typed returns the buffer of count entries of t in mem, with displacement 0 of
// the first at mem[0]. mem is of a type that OfStructs takes; what t says of it
// counts alone. A call that is given the buffer fails with class ErrType if t is nil or
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
// call that is given it fails with class ErrType if there is none: T has a field of no
// fixed size. To name the same datatype elsewhere, make another with
// datatype.FromGo.
func OfStructs[T any](s []T) Buffer {
	t := goType[T]()
	if t == &badStruct {
		return Buffer{typ: t}
	}
	return typedAt(bytesOf(s), 0, len(s), t)
}

// Len returns the number of elements, or of entries of a derived datatype.
func (b Buffer) Len() int {
	if b.typ != nil {
		return b.n
	}
	return b.bytes / max(1, datatype.Basic(b.n).Size())
}

// The methods below are for packages with operations on buffers.

// Plain reports whether b is elements of one predefined datatype without gaps.
func (b Buffer) Plain() bool { return b.typ == nil }

// Basic returns the predefined datatype of the elements of a plain buffer, otherwise,
// and if b is the zero value, 0.
func (b Buffer) Basic() datatype.Basic {
	if b.typ != nil {
		return 0
	}
	return datatype.Basic(b.n)
}

// Entries returns the count and datatype of b, which Check has found to be right.
func (b Buffer) Entries() (int, *datatype.Type) {
	if b.typ != nil {
		return b.n, b.typ
	}
	if b.n == 0 {
		return 0, datatype.Byte // the zero Buffer
	}
	return b.Len(), datatype.Basic(b.n).Type()
}

// Origin returns where displacement 0 lies in the memory of b, which Check has found to be
// right.
func (b Buffer) Origin() int64 {
	if b.typ == nil {
		return 0
	}
	lo, _, _ := b.typ.Bounds(b.n) // checked when b was made
	return -lo
}

// Check looks at b, the given side of the call op, by itself. It returns the errors that
// Value, Typed and OfStructs list, and class ErrType if b's datatype was freed.
func (b Buffer) Check(op, side string, rank int) error {
	switch b.typ {
	case nil:
		return nil
	case &badType:
		return mpierr.New(op, mpierr.Type, rank, "the %s has no committed datatype: call its Commit", side)
	case &badValue:
		return mpierr.New(op, mpierr.Arg, rank, "the %s is Value of a nil pointer: point to an element", side)
	case &badStruct:
		return mpierr.New(op, mpierr.Type, rank, "the %s is of a Go type without a datatype: datatype.FromGo says why", side)
	case &badCount:
		return mpierr.New(op, mpierr.Count, rank, "the %s cannot have %d entries", side, b.n)
	case &badMemory:
		return mpierr.New(op, mpierr.Arg, rank, "the memory of the %s does not hold %d entries of its datatype", side, b.n)
	}
	if !b.typ.Committed() {
		return mpierr.New(op, mpierr.Type, rank, "%v, the datatype of the %s, was freed", b.typ, side)
	}
	return nil
}
