package rma

import "github.com/xdprma/xdprma/datatype"

// Buffer is memory of the origin with the type of its elements: the triple of
// address, count and datatype of the standard's calls. Make it with Of, Value,
// Bytes, OfStructs or Typed; the zero value is empty.
type Buffer struct {
	// Four words, which a call is given in registers.
	first *byte          // of a derived datatype: the first byte of data
	bytes int            // of a derived datatype: to the last byte of data
	typ   *datatype.Type // nil where the memory is elements of basic without gaps
	n     int            // entries of typ, or the code of basic
}

func plain(mem []byte, basic datatype.Basic) Buffer {
	return Buffer{first: firstByte(mem), bytes: len(mem), n: int(basic)}
}

// basic returns the predefined datatype of the elements, where typ is nil.
func (b *Buffer) basic() datatype.Basic { return datatype.Basic(b.n) }

// Of returns the buffer that is the slice s. The library reads or writes s, and
// keeps it alive, until the operation completes. See datatype.Pair for the alignment
// of pairs in a window.
func Of[T datatype.Element](s []T) Buffer { return plain(bytesOf(s), datatype.BasicOf[T]()) }

// Value returns the buffer that is the single element *p.
func Value[T datatype.Element](p *T) Buffer { return plain(bytesOfValue(p), datatype.BasicOf[T]()) }

// Bytes returns the buffer that is b, as elements of type byte.
func Bytes(b []byte) Buffer { return plain(b, datatype.BasicByte) }

// Len returns the number of elements, or of entries of a derived datatype.
func (b Buffer) Len() int {
	if b.typ != nil {
		return b.n
	}
	return b.bytes / max(1, b.basic().Size())
}

// Location is a place in the target's window and, where As was called, what is
// there.
type Location struct {
	disp  int64
	typ   *datatype.Type // nil: what the origin has
	count int
}

// At returns the place that lies disp displacement units of the target from the
// start of its window.
func At(disp int64) Location { return Location{disp: disp} }

// Op is a reduction operator of the accumulate calls (section 11.3.4).
type Op = datatype.Op

// The operators.
const (
	Sum     = datatype.Sum
	Prod    = datatype.Prod
	Min     = datatype.Min
	Max     = datatype.Max
	LAnd    = datatype.LAnd
	LOr     = datatype.LOr
	LXor    = datatype.LXor
	BAnd    = datatype.BAnd
	BOr     = datatype.BOr
	BXor    = datatype.BXor
	Replace = datatype.Replace // the new value replaces the old one
	NoOp    = datatype.NoOp    // nothing changes: an atomic read
	MinLoc  = datatype.MinLoc  // of pairs: the one with the smaller value
	MaxLoc  = datatype.MaxLoc  // of pairs: the one with the larger value
)
