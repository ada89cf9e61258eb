package program

import (
	"encoding/binary"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/elements"
)

var le = binary.LittleEndian

// gather returns the data of s in memory where displacement 0 is at base.
func (s *Side) gather(mem []byte, base int) (packed []byte) {
	s.each(func(at int, b datatype.Basic) {
		packed = append(packed, mem[base+at:base+at+b.Size()]...)
	})
	return packed
}

// scatter stores packed data, as much as there is.
func (s *Side) scatter(mem []byte, base int, packed []byte) {
	s.each(func(at int, b datatype.Basic) {
		n := min(b.Size(), len(packed))
		copy(mem[base+at:], packed[:n])
		packed = packed[n:]
	})
}

// Where returns what the call touches at the target.
func (c *Call) Where() *Side {
	switch {
	case c.At.Layout != nil:
		return &c.At
	case c.Code == Put || c.Code == Accumulate:
		return &c.Origin
	}
	return &c.Result
}

// pattern is what result memory holds before the call.
const pattern = 0xa5

// apply lets a call take effect in the memory of its target, and sets what its
// result must be.
func (c *Call) apply(mem []byte) {
	if c.Fetches() {
		c.Want = make([]byte, c.Result.Len)
		for i := range c.Want {
			c.Want[i] = pattern
		}
	}
	at := c.Where()
	if c.Target == Null || at.Count == 0 {
		return
	}
	var operand []byte
	if c.Reads() {
		operand = c.Origin.gather(c.Data, c.Origin.Base)
	}
	former := at.gather(mem, c.Disp)
	switch c.Code {
	case Put:
		at.scatter(mem, c.Disp, operand)
		return
	case CompareAndSwap:
		if string(former) == string(c.Compare) {
			copy(mem[c.Disp:], operand)
		}
	case Get:
	default:
		combine(c.Op, at, mem, c.Disp, operand)
	}
	if c.Fetches() {
		c.Result.scatter(c.Want, c.Result.Base, former)
	}
}

// combine accumulates element by element.
func combine(op datatype.Op, at *Side, mem []byte, base int, operand []byte) {
	if op == datatype.NoOp {
		return
	}
	word := make([]byte, 16)
	at.each(func(off int, b datatype.Basic) {
		n := b.Size()
		if len(operand) < n {
			return
		}
		place := mem[base+off : base+off+n]
		copy(word, place)
		elements.Accumulate(op, b, word[:n], operand[:n])
		copy(place, word)
		operand = operand[n:]
	})
}
