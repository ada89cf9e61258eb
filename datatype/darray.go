package datatype

import (
	"strconv"

	"github.com/xdprma/xdprma/mpierr"
)

// Distribution says how a dimension of an array is divided among processes.
type Distribution uint8

// The distributions.
const (
	DistributeBlock  Distribution = 1 // each process has one block
	DistributeCyclic Distribution = 2 // blocks go round the processes
	DistributeNone   Distribution = 3 // the dimension is not divided
)

// DefaultArg stands for the usual distribution argument: blocks that divide the
// dimension evenly, or a cycle of single entries.
const DefaultArg = -1

// String returns "block", "cyclic" or "none".
func (d Distribution) String() string {
	switch d {
	case DistributeBlock:
		return "block"
	case DistributeCyclic:
		return "cyclic"
	case DistributeNone:
		return "none"
	}
	return "distribution " + strconv.Itoa(int(d))
}

// DistributedArray returns the part that process rank of size has of an array of
// old with globalSizes entries, divided over a grid of processes of the shape
// procs. Ranks are laid out over the grid with the last dimension fastest,
// whatever order says of the array. distArgs holds the entries of a block, or
// DefaultArg. The extent is that of the whole array. Its error has class ErrArg if
// the arguments do not fit each other.
func DistributedArray(size, rank int, globalSizes []int, dists []Distribution, distArgs, procs []int, order Order, old *Type) (*Type, error) {
	const op = "distributed_array"
	if err := usable(op, old); err != nil {
		return nil, err
	}
	dims := len(globalSizes)
	if err := checkArray(op, order, dims, len(dists), len(distArgs), len(procs)); err != nil {
		return nil, err
	}
	coords, err := gridPlace(op, size, rank, procs)
	if err != nil {
		return nil, err
	}
	a := array{layout: old.layout, stride: old.layout.extent()}
	for k := range dims {
		i := order.dimension(k, dims)
		global, p := globalSizes[i], procs[i]
		if global < 1 || global > maxSpan {
			return nil, fail(op, mpierr.Arg, "dimension %d has %d entries", i, global)
		}
		block, ok := blockOf(dists[i], distArgs[i], global, p)
		if !ok {
			return nil, fail(op, mpierr.Arg, "dimension %d: %d entries cannot be divided by %s with argument %d over %d processes",
				i, global, dists[i], distArgs[i], p)
		}
		var c calc
		step := c.mul(int64(block), int64(p))
		start := int64(coords[i]) * int64(block)
		if c.bad {
			return derive(op, "", layout{}, c.err())
		}
		a.take(int64(global), min(start, int64(global)), int64(block), step, int64(global))
	}
	l, err := a.whole()
	return derive(op, describe(op, size, rank, globalSizes, dists, distArgs, procs, order, old), l, err)
}

// blockOf returns the entries of a block, and false if the arguments are not allowed.
func blockOf(d Distribution, arg, global, procs int) (int, bool) {
	switch {
	case d == DistributeNone:
		return global, procs == 1 && arg == DefaultArg
	case d == DistributeBlock && arg == DefaultArg:
		return (global-1)/procs + 1, true
	case d == DistributeBlock:
		return arg, arg >= 1 && arg >= (global-1)/procs+1
	case d == DistributeCyclic && arg == DefaultArg:
		return 1, true
	}
	return arg, d == DistributeCyclic && arg >= 1
}

// gridPlace returns rank's coordinates in a grid of the shape procs.
func gridPlace(op string, size, rank int, procs []int) ([]int, error) {
	left := size
	for i, p := range procs {
		if p < 1 || left%p != 0 {
			return nil, fail(op, mpierr.Arg, "dimension %d: a grid of %d processes cannot have %d of them there", i, size, p)
		}
		left /= p
	}
	if size < 1 || left != 1 {
		return nil, fail(op, mpierr.Arg, "the grid's shape is not one of %d processes", size)
	}
	if rank < 0 || rank >= size {
		return nil, fail(op, mpierr.Arg, "rank %d of %d", rank, size)
	}
	coords := make([]int, len(procs))
	for i := len(procs) - 1; i >= 0; i-- {
		coords[i] = rank % procs[i]
		rank /= procs[i]
	}
	return coords, nil
}
