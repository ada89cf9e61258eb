package datatype

import (
	"strconv"

	"github.com/xdprma/xdprma/mpierr"
)

// Order says which dimension of an array has its elements next to each other.
type Order uint8

// The storage orders.
const (
	OrderC       Order = 1 // the last dimension, as in C and Go
	OrderFortran Order = 2 // the first dimension
)

// String returns "c" or "fortran".
func (o Order) String() string {
	switch o {
	case OrderC:
		return "c"
	case OrderFortran:
		return "fortran"
	}
	return "order " + strconv.Itoa(int(o))
}

// dimension returns the i-th dimension, counted from the fastest.
func (o Order) dimension(i, dims int) int {
	if o == OrderC {
		return dims - 1 - i
	}
	return i
}

// Subarray returns the part of an array of old that starts at starts and has
// subSizes entries in each dimension of sizes. Its extent is that of the whole
// array. Its error has class ErrArg if the part is empty or not inside the array.
func Subarray(sizes, subSizes, starts []int, order Order, old *Type) (*Type, error) {
	const op = "subarray"
	if err := usable(op, old); err != nil {
		return nil, err
	}
	if err := checkArray(op, order, len(sizes), len(subSizes), len(starts)); err != nil {
		return nil, err
	}
	for i, size := range sizes {
		if size < 1 || subSizes[i] < 1 || subSizes[i] > size || starts[i] < 0 || starts[i] > size-subSizes[i] {
			return nil, fail(op, mpierr.Arg, "dimension %d: %d entries at %d of %d", i, subSizes[i], starts[i], size)
		}
	}
	a := array{layout: old.layout, stride: old.layout.extent()}
	for k := range sizes {
		i := order.dimension(k, len(sizes))
		start, n := int64(starts[i]), int64(subSizes[i])
		a.take(int64(sizes[i]), start, n, n, start+n)
	}
	l, err := a.whole()
	return derive(op, describe(op, sizes, subSizes, starts, order, old), l, err)
}

func checkArray(op string, order Order, dims int, others ...int) error {
	for _, n := range others {
		if n != dims || n == 0 {
			return fail(op, mpierr.Arg, "an array of %d dimensions with %d arguments for them", dims, n)
		}
	}
	if order != OrderC && order != OrderFortran {
		return fail(op, mpierr.Arg, "%s is no storage order", order)
	}
	return nil
}

// array builds a part of an array, dimension by dimension, fastest first.
type array struct {
	layout layout
	stride int64 // bytes from one index of the next dimension to the following
	err    error
}

// take chooses indices of the next dimension, which has size: blocks of block
// indices from start on, step apart, the last one cut off at end.
func (a *array) take(size, start, block, step, end int64) {
	var c calc
	var parts []layout
	add := func(from, count, length int64) {
		if a.err != nil || count <= 0 || length <= 0 {
			return
		}
		l, err := a.layout.repeat(length, a.stride)
		if err == nil {
			l, err = l.repeat(count, c.mul(step, a.stride))
		}
		if err == nil {
			l, err = l.shift(c.mul(from, a.stride))
		}
		a.err = err
		parts = append(parts, l)
	}
	full := int64(0)
	if end-start >= block {
		full = (end-start-block)/step + 1
	}
	add(start, full, block)
	add(start+full*step, 1, end-(start+full*step))
	if a.err == nil {
		a.layout, a.err = concat(parts)
	}
	a.stride = c.mul(a.stride, size)
	if a.err == nil {
		a.err = c.err()
	}
}

// whole returns the layout with the bounds of the whole array.
func (a *array) whole() (layout, error) {
	if a.err != nil {
		return layout{}, a.err
	}
	return a.layout.resize(0, a.stride)
}
