package datatype

import "errors"

// maxSpan bounds every displacement, extent and size, so that the sum of a few
// of them cannot overflow.
const maxSpan = 1 << 60

var (
	errOverflow = errors.New("the layout reaches beyond 2^60 bytes")
	errDepth    = errors.New("the layout is nested more than 16 deep")
	errEncoding = errors.New("the bytes are not the encoding of a datatype")
)

// calc is integer arithmetic that remembers whether a result left the range
// of -maxSpan to maxSpan.
type calc struct{ bad bool }

func (c *calc) in(v int64) int64 {
	if v < -maxSpan || v > maxSpan {
		c.bad = true
		return 0
	}
	return v
}

func (c *calc) add(a, b int64) int64 { return c.in(c.in(a) + c.in(b)) }

func (c *calc) mul(a, b int64) int64 {
	a, b = c.in(a), c.in(b)
	if a == 0 || b == 0 {
		return 0
	}
	p := a * b
	if p/b != a {
		c.bad = true
		return 0
	}
	return c.in(p)
}

// bounds returns the first and last of count displacements that are stride apart,
// from 0 on.
func (c *calc) bounds(count, stride int64) (low, high int64) {
	last := c.mul(count-1, stride)
	return min(0, last), max(0, last)
}

func (c *calc) err() error {
	if c.bad {
		return errOverflow
	}
	return nil
}
