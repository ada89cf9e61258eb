package datatype

import (
	"encoding/binary"

	"github.com/xdprma/xdprma/mpierr"
)

// Decode returns the committed type that Encode was given. It takes b from
// anyone: whatever b holds, the type has bounds that pass the checks of Bounds
// or Decode fails, its iterators stay inside of them, and it takes time and memory in
// proportion to b, at most eighty bytes for each of b's. Its error has class ErrType.
func Decode(b []byte) (*Type, error) {
	const op = "decode"
	if len(b) > MaxEncoded {
		return nil, fail(op, mpierr.Type, "%d bytes, more than %d", len(b), MaxEncoded)
	}
	d := decoder{rest: b}
	l := d.layout()
	if d.err == nil && len(d.rest) > 0 {
		d.err = errEncoding
	}
	if d.err == nil {
		if _, _, ok := boundsOf(l.ref, l.extent(), 1); !ok {
			d.err = errOverflow
		}
	}
	if d.err != nil {
		return nil, fail(op, mpierr.Type, "%w", d.err)
	}
	t := &Type{made: describe("decoded", len(b)), layout: l}
	return t, t.Commit()
}

// decoder reads from rest until err is set; then it returns zero values.
type decoder struct {
	rest  []byte
	err   error
	runs  runCache
	parts []ref // of the lists that are being read, the innermost last
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *decoder) byte() byte {
	if d.err != nil || len(d.rest) == 0 {
		d.fail(errEncoding)
		return 0
	}
	v := d.rest[0]
	d.rest = d.rest[1:]
	return v
}

func (d *decoder) signed() int64 {
	v, n := binary.Varint(d.rest)
	if d.err != nil || n <= 0 || v < -2*maxSpan || v > 2*maxSpan {
		d.fail(errEncoding)
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// count reads a number that is stored less the smallest it can be.
func (d *decoder) count(least int64) int64 {
	v, n := binary.Uvarint(d.rest)
	if d.err != nil || n <= 0 || v > maxSpan {
		d.fail(errEncoding)
		return 0
	}
	d.rest = d.rest[n:]
	return int64(v) + least
}

func (d *decoder) layout() layout {
	if d.byte() != wireVersion {
		d.fail(errEncoding)
	}
	flags := d.byte()
	if flags&^(wireBounds|wireData) != 0 {
		d.fail(errEncoding)
	}
	var lb, extent int64
	if flags&wireBounds != 0 {
		lb, extent = d.signed(), d.signed()
	}
	var r ref
	if flags&wireData != 0 {
		disp := d.signed()
		r = d.node(0)
		r.off += disp
	}
	if d.err != nil {
		return layout{}
	}
	if flags&wireBounds == 0 {
		return natural(r)
	}
	l, err := layout{ref: r}.resize(lb, extent)
	d.err = err
	return l
}

// node reads a node inside of depth others.
func (d *decoder) node(depth int) ref {
	tag := d.byte()
	if depth > maxDepth {
		d.fail(errDepth)
	}
	if d.err != nil {
		return ref{}
	}
	var r ref
	var err error
	switch tag {
	case wireRun:
		r, err = d.run()
	case wireLoop:
		count, stride := d.count(2), d.signed()
		body := d.node(depth + 1)
		if d.err == nil {
			r, err = newLoop(body, count, stride)
		}
	case wireList:
		r, err = d.list(depth)
	default:
		err = errEncoding
	}
	if err != nil {
		d.fail(err)
	}
	return r
}

func (d *decoder) run() (ref, error) {
	b := Basic(d.byte())
	elements, count := d.count(0), d.count(1)
	if d.err != nil || !b.Valid() || elements < 1 {
		return ref{}, errEncoding
	}
	var c calc
	length := c.mul(elements, int64(b.Size()))
	if c.bad {
		return ref{}, c.err()
	}
	stride := int64(0)
	if count > 1 {
		stride = d.signed()
	}
	if d.err != nil {
		return ref{}, d.err
	}
	return d.runs.run(b, length, count, stride)
}

func (d *decoder) list(depth int) (ref, error) {
	n := d.count(2)
	if d.err != nil || 2*n > int64(len(d.rest)) { // an item takes two bytes and more
		return ref{}, errEncoding
	}
	first := len(d.parts)
	var last ref
	var disp int64
	var c calc
	for i := range n {
		if i > 0 {
			disp = c.in(disp + d.signed())
		}
		if i > 0 && len(d.rest) > 0 && d.rest[0] == wireSame {
			d.rest = d.rest[1:]
		} else {
			last = d.node(depth + 1)
			if d.err == nil && last.short() { // Encode does not send it: see splice
				d.fail(errEncoding)
			}
		}
		if d.err != nil || c.bad {
			return ref{}, errEncoding
		}
		d.parts = append(d.parts, ref{disp + last.off, last.node})
	}
	r, err := newList(d.parts[first:])
	d.parts = d.parts[:first]
	return r, err
}
