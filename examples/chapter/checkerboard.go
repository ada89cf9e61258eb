package main

import (
	"context"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

// field is a rank's part of an array whose cells depend on their neighbours. It has
// the form of a line: copies of the neighbours' outer cells beside its own.
type field struct {
	win         *rma.Win
	cells       []float64
	left, right int
}

func newField(ctx context.Context, c *comm.Comm, cells []float64) *field {
	f := &field{cells: cells}
	f.left, f.right, _ = neighbours(c)
	win, err := rma.Create(ctx, c, rma.BytesOf(f.cells), 8, nil)
	check(err)
	f.win = win
	return f
}

// getBoundary reads the neighbours' outer cells.
func (f *field) getBoundary() {
	check(f.win.Get(buffer.Value(&f.cells[leftCopy]), f.left, rma.At(last)))
	check(f.win.Get(buffer.Value(&f.cells[rightCopy]), f.right, rma.At(first)))
}

// mix updates the inner cells from their neighbours and from the other field.
func mix(cells, other []float64) {
	before := cells[0]
	for i := 1; i < len(cells)-1; i++ {
		v := (before+cells[i+1])/2 + other[i]/8
		before, cells[i] = cells[i], v
	}
}

// damp updates the inner cells from themselves.
func damp(cells []float64) {
	for i := 1; i < len(cells)-1; i++ {
		cells[i] *= 0.75
	}
}

// initial returns a whole array of n cells with a zero at either end.
func initial(n int, factor float64) []float64 {
	cells := make([]float64, n+2)
	for i := 1; i <= n; i++ {
		cells[i] = factor * float64(i*i%7)
	}
	return cells
}

const faint = 0.05 // cells are small enough

func largest(arrays ...[]float64) float64 {
	most := 0.0
	for _, cells := range arrays {
		for _, v := range cells[1 : len(cells)-1] {
			most = max(most, v)
		}
	}
	return most
}

// checkerboard is example 11.17: two arrays take turns. While the neighbours' cells
// of one travel, the other one is computed. Each rank exposes an array before it
// completes its own accesses to the other one. So when Wait for one returns, all
// neighbours have exposed the other, and Start need not ask: ModeNoCheck. The
// barrier does for the first turn what Wait does later.
func checkerboard(ctx context.Context, c *comm.Comm) {
	n, at := c.Size()*ownCells, c.Rank()*ownCells
	all0, all1 := initial(n, 1), initial(n, 2)
	a0 := newField(ctx, c, append([]float64(nil), all0[at:at+ownCells+2]...))
	a1 := newField(ctx, c, append([]float64(nil), all1[at:at+ownCells+2]...))
	_, _, group := neighbours(c)
	turns := 0
	converged := func() bool {
		most := []float64{0}
		check(comm.Allreduce(ctx, c, []float64{largest(a0.cells, a1.cells)}, most, rma.Max))
		return most[0] < faint
	}

	going := !converged()
	if going {
		check(a0.win.Post(ctx, group, rma.ModeNoCheck|rma.ModeNoPut))
	}
	check(c.Barrier(ctx))
	for ; going; turns++ {
		// a0 travels, and a1 is computed.
		mix(a1.cells, a0.cells)
		check(a0.win.Start(ctx, group, rma.ModeNoCheck))
		a0.getBoundary()
		damp(a1.cells)
		check(a1.win.Post(ctx, group, rma.ModeNoCheck|rma.ModeNoPut))
		check(a0.win.Complete(ctx))
		check(a0.win.Wait(ctx))

		// a1 travels, and a0 is computed.
		mix(a0.cells, a1.cells)
		check(a1.win.Start(ctx, group, rma.ModeNoCheck))
		a1.getBoundary()
		damp(a0.cells)
		if going = !converged(); going {
			check(a0.win.Post(ctx, group, rma.ModeNoCheck|rma.ModeNoPut))
		}
		check(a1.win.Complete(ctx))
		check(a1.win.Wait(ctx))
	}

	alone := 0 // one process, on the whole arrays
	for ; largest(all0, all1) >= faint; alone++ {
		mix(all1, all0)
		damp(all1)
		mix(all0, all1)
		damp(all0)
	}
	equal(turns, alone)
	for i := first; i <= last; i++ {
		equal(a0.cells[i], all0[at+i])
		equal(a1.cells[i], all1[at+i])
	}
	check(a0.win.Free(ctx))
	check(a1.win.Free(ctx))
}
