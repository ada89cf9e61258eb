package datatype

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/xdprma/xdprma/mpierr"
)

// Type describes the layout of one entry of a buffer: which bytes it has, in
// which order, and what elements they make. Types are compared by pointer. Apart
// from Commit, Free and SetName nothing changes them, and all methods but
// SetName may be called from any goroutine at any time.
//
// A derived type is used in communication between Commit and Free. Types made
// from it do not depend on it afterwards.
type Type struct {
	name       string
	made       string // the construction, as String shows it
	predefined bool
	ofGo       bool
	layout     layout
	compiled   atomic.Pointer[compiled] // nil before Commit, freed after Free
}

// compiled is what an Iter walks: the layout in the two ways of looking at it.
type compiled struct {
	elements ref // pieces of one datatype each
	bytes    ref // pieces joined across datatypes; the same where all are of one
	extent   int64
	size     int64
	sig      signature
	apart    atomic.Int64 // entries that are known not to overlap
}

var freed = new(compiled)

// derive makes a type from a constructor's result. op is the constructor's name.
func derive(op, made string, l layout, err error) (*Type, error) {
	if err != nil {
		return nil, fail(op, mpierr.Arg, "%w", err)
	}
	return &Type{made: made, layout: l}, nil
}

func fail(op string, class mpierr.Class, format string, args ...any) error {
	return mpierr.New("type "+op, class, mpierr.NoRank, format, args...)
}

func predefined(b Basic) *Type {
	l := natural(ref{node: newRun(b, int64(b.Size()))})
	t := &Type{name: b.String(), made: b.String(), predefined: true, layout: l}
	t.compiled.Store(compile(l))
	return t
}

// Commit makes t ready for communication. It has no effect on a type that is
// committed, and fails with class ErrType if t is nil or freed.
func (t *Type) Commit() error {
	if err := usable("commit", t); err != nil {
		return err
	}
	if t.compiled.Load() == nil {
		t.compiled.CompareAndSwap(nil, compile(t.layout))
	}
	return nil
}

// Commit returns t, which a constructor has returned, once it is committed, or the
// constructor's error:
//
//	column, err := datatype.Commit(datatype.Vector(rows, 1, columns, datatype.Float64))
func Commit(t *Type, err error) (*Type, error) {
	if err == nil {
		err = t.Commit()
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// OfGo reports whether t is what FromGo or FromStruct has returned: any number of entries are
// a slice of the Go type.
func (t *Type) OfGo() bool { return t.ofGo }

// Free ends the use of t. Communication that has begun is not disturbed. It
// fails with class ErrType if t is nil, predefined or freed already.
func (t *Type) Free() error {
	switch {
	case t == nil:
		return fail("free", mpierr.Type, "no datatype")
	case t.predefined:
		return fail("free", mpierr.Type, "%s is predefined", t)
	case t.compiled.Swap(freed) == freed:
		return fail("free", mpierr.Type, "%s was freed before", t)
	}
	return nil
}

// Committed reports whether t can be used in communication: it is predefined, or
// Commit was called and Free was not.
func (t *Type) Committed() bool {
	if t == nil {
		return false
	}
	p := t.compiled.Load()
	return p != nil && p != freed
}

// usable returns an error of class ErrType if t cannot be built upon.
func usable(op string, t *Type) error {
	if t == nil {
		return fail(op, mpierr.Type, "no datatype")
	}
	if t.compiled.Load() == freed {
		return fail(op, mpierr.Type, "%s was freed", t)
	}
	return nil
}

// Size returns the bytes of data in one entry, without gaps.
func (t *Type) Size() int { return int(t.layout.size()) }

// Extent returns the bytes from the start of one entry to the start of the next.
// It can be negative.
func (t *Type) Extent() int { return int(t.layout.extent()) }

// LowerBound returns where an entry's extent starts, in bytes from displacement 0.
func (t *Type) LowerBound() int { return int(t.layout.lb) }

// TrueExtent returns where the first byte of an entry's data is, and the bytes
// from there to the end of the last, whatever Resized said.
func (t *Type) TrueExtent() (trueLowerBound, trueExtent int) {
	lo, hi := t.layout.bounds()
	return int(lo), int(hi - lo)
}

// Basic returns the predefined datatype that all of t's elements have, and the
// zero value if they differ or there are none.
func (t *Type) Basic() Basic {
	if t.layout.node == nil {
		return 0
	}
	return t.layout.node.basic
}

// UniformBasic returns the predefined datatype that all of t's elements have, as
// accumulates require, and false if they differ or there are none.
func (t *Type) UniformBasic() (Basic, bool) {
	b := t.Basic()
	return b, b != 0
}

// Contiguous reports whether any number of entries are bytes without gaps, in
// packed order, from the true lower bound on.
func (t *Type) Contiguous() bool {
	if p := t.compiled.Load(); p != nil && p != freed {
		return p.contiguous()
	}
	return compile(t.layout).contiguous()
}

func (p *compiled) contiguous() bool {
	n := p.bytes.node
	return n == nil || n.single() && n.length == p.extent
}

// Bounds returns the range [lo, hi) of bytes, counted from displacement 0, that
// count entries touch: 0 and 0 if they have no bytes. Its error has class ErrCount
// if count is negative, or if some bound or the data's size exceeds 2^60.
func (t *Type) Bounds(count int) (lo, hi int64, err error) {
	lo, hi, ok := boundsOf(t.layout.ref, t.layout.extent(), int64(count))
	if !ok {
		return 0, 0, fail("bounds", mpierr.Count, "%d entries of %s", count, t)
	}
	return lo, hi, nil
}

// boundsOf returns the range of count copies of r, extent bytes apart.
func boundsOf(r ref, extent, count int64) (lo, hi int64, ok bool) {
	if count < 0 {
		return 0, 0, false
	}
	if count == 0 || r.node == nil {
		return 0, 0, true
	}
	var c calc
	low, high := c.bounds(count, extent)
	first, end := r.bounds()
	lo, hi = c.add(first, low), c.add(end, high)
	c.mul(r.node.size, count)
	return lo, hi, !c.bad
}

// Name returns the datatype's name: that of a predefined datatype, or what
// SetName was given, or "".
func (t *Type) Name() string { return t.name }

// SetName names t for Name and String. It must not be called while t is used
// elsewhere, and fails with class ErrType for a predefined datatype.
func (t *Type) SetName(name string) error {
	if err := usable("set name", t); err != nil {
		return err
	}
	if t.predefined {
		return fail("set name", mpierr.Type, "%s is predefined", t)
	}
	t.name = name
	return nil
}

// String shows how t was constructed, shortened where it is long, for example
// "vector(3, 2, 4, float64)". A name that SetName gave stands in front.
func (t *Type) String() string {
	switch {
	case t == nil:
		return "no datatype"
	case t.name == "" || t.predefined:
		return t.made
	}
	return t.name + "=" + t.made
}

// describe formats a construction: name(args), each argument shortened.
func describe(name string, args ...any) string {
	var b strings.Builder
	b.WriteString(name)
	for i, arg := range args {
		b.WriteString([...]string{"(", ", "}[min(i, 1)])
		switch v := arg.(type) {
		case []int:
			writeList(&b, len(v), func(i int) { fmt.Fprint(&b, v[i]) })
		case []*Type:
			writeList(&b, len(v), func(i int) { b.WriteString(v[i].short()) })
		case []Distribution:
			writeList(&b, len(v), func(i int) { fmt.Fprint(&b, v[i]) })
		case *Type:
			b.WriteString(v.short())
		default:
			fmt.Fprint(&b, v)
		}
	}
	b.WriteByte(')')
	return b.String()
}

// short is what stands for t in the description of a type made from it.
func (t *Type) short() string {
	s := t.String()
	if len(s) > 200 {
		s, _, _ = strings.Cut(s, "(")
		s += "(...)"
	}
	return s
}

func writeList(b *strings.Builder, n int, write func(i int)) {
	b.WriteByte('[')
	for i := range min(n, 8) {
		if i > 0 {
			b.WriteByte(' ')
		}
		write(i)
	}
	if n > 8 {
		fmt.Fprintf(b, " ... %d in all", n)
	}
	b.WriteByte(']')
}
