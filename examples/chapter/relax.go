package main

import (
	"context"
	"math"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

// Examples 11.13 to 11.16 are one loosely synchronous program, a relaxation, written
// in four ways. Each cell of a line becomes the mean of its neighbours, until no
// cell changes by more than tolerance. The line is divided among the ranks; each
// needs its neighbours' nearest cells, which it keeps beside its own.
const (
	ownCells  = 4
	tolerance = 0.004

	leftCopy  = 0 // displacements in a rank's window: the left neighbour's last cell,
	first     = 1 // the rank's own cells,
	last      = ownCells
	rightCopy = ownCells + 1 // and the right neighbour's first one
)

// line is a rank's part of the line. The window is cells.
type line struct {
	c           *comm.Comm
	win         *rma.Win
	cells       []float64
	left, right int   // neighbours; ProcNull at the ends
	group       []int // those that exist

	former [ownCells + 2]float64 // the cells before the update
	change float64               // by the update
	steps  int
}

// newLine makes a line of zeros with a fixed 1 before its first cell and a fixed 0
// behind its last one.
func newLine(ctx context.Context, c *comm.Comm) *line {
	l := &line{c: c, cells: make([]float64, ownCells+2), change: math.Inf(1)}
	l.left, l.right, l.group = neighbours(c)
	if l.left == rma.ProcNull {
		l.cells[leftCopy] = 1
	}
	win, err := rma.Create(ctx, c, rma.BytesOf(l.cells), 8, nil)
	check(err)
	l.win = win
	return l
}

// neighbours returns the ranks before and after this one.
func neighbours(c *comm.Comm) (left, right int, group []int) {
	left, right = c.Rank()-1, c.Rank()+1
	if left >= 0 {
		group = append(group, left)
	} else {
		left = rma.ProcNull
	}
	if right < c.Size() {
		group = append(group, right)
	} else {
		right = rma.ProcNull
	}
	return left, right, group
}

// updateBoundary computes the two cells that neighbours need.
func (l *line) updateBoundary() {
	copy(l.former[:], l.cells)
	l.change = 0
	l.update(first)
	l.update(last)
}

// updateCore computes the other cells. It uses no neighbour's cell.
func (l *line) updateCore() {
	for i := first + 1; i < last; i++ {
		l.update(i)
	}
}

func (l *line) update(i int) {
	l.cells[i] = (l.former[i-1] + l.former[i+1]) / 2
	l.change = max(l.change, math.Abs(l.cells[i]-l.former[i]))
}

// converged reports whether the last update was the last one needed. It is
// collective.
func (l *line) converged(ctx context.Context) bool {
	largest := []float64{0}
	check(comm.Allreduce(ctx, l.c, []float64{l.change}, largest, rma.Max))
	if largest[0] < tolerance {
		return true
	}
	l.steps++
	return false
}

// putBoundary writes this rank's outer cells to the copies at its neighbours.
func (l *line) putBoundary() {
	check(l.win.Put(buffer.Value(&l.cells[first]), l.left, rma.At(rightCopy)))
	check(l.win.Put(buffer.Value(&l.cells[last]), l.right, rma.At(leftCopy)))
}

// getBoundary reads the neighbours' outer cells to this rank's copies.
func (l *line) getBoundary() {
	check(l.win.Get(buffer.Value(&l.cells[leftCopy]), l.left, rma.At(last)))
	check(l.win.Get(buffer.Value(&l.cells[rightCopy]), l.right, rma.At(first)))
}

// finish compares the cells and the number of steps with those of one process.
func (l *line) finish(ctx context.Context) {
	n := l.c.Size() * ownCells
	cells, former := make([]float64, n+2), make([]float64, n+2)
	cells[0] = 1
	steps := 0
	for change := math.Inf(1); change >= tolerance; steps++ {
		copy(former, cells)
		change = 0
		for i := 1; i <= n; i++ {
			cells[i] = (former[i-1] + former[i+1]) / 2
			change = max(change, math.Abs(cells[i]-former[i]))
		}
	}
	equal(l.steps, steps)
	for i, v := range cells[l.c.Rank()*ownCells:][:ownCells+2] {
		equal(l.cells[i], v)
	}
	check(l.win.Free(ctx))
}

// relaxByFenceAndPut is example 11.13: each rank updates its cells and then puts the
// outer ones to its neighbours between two fences. While windows are written to by
// puts, nobody loads or stores what they write.
func relaxByFenceAndPut(ctx context.Context, c *comm.Comm) {
	l := newLine(ctx, c)
	for !l.converged(ctx) {
		l.updateBoundary()
		l.updateCore()
		check(l.win.Fence(ctx, rma.ModeNoPrecede))
		l.putBoundary()
		check(l.win.Fence(ctx, rma.ModeNoStore|rma.ModeNoSucceed))
	}
	l.finish(ctx)
}

// relaxByFenceAndGet is example 11.14: the outer cells are updated first. The others
// are computed while the neighbours' outer cells are on their way, since gets do not
// mind stores to other places of a window. With puts in place of the gets the core
// would have to be in a window of its own, or in none: a window that is put to must
// not be stored to in the same epoch.
func relaxByFenceAndGet(ctx context.Context, c *comm.Comm) {
	l := newLine(ctx, c)
	for !l.converged(ctx) {
		l.updateBoundary()
		check(l.win.Fence(ctx, rma.ModeNoPut|rma.ModeNoPrecede))
		l.getBoundary()
		l.updateCore()
		check(l.win.Fence(ctx, rma.ModeNoSucceed))
	}
	l.finish(ctx)
}

// relaxByPostAndPut is example 11.15: as 11.13, but each rank synchronises with its
// neighbours alone.
func relaxByPostAndPut(ctx context.Context, c *comm.Comm) {
	l := newLine(ctx, c)
	for !l.converged(ctx) {
		l.updateBoundary()
		l.updateCore()
		check(l.win.Post(ctx, l.group, 0))
		check(l.win.Start(ctx, l.group, 0))
		l.putBoundary()
		check(l.win.Complete(ctx))
		check(l.win.Wait(ctx))
	}
	l.finish(ctx)
}

// relaxByPostAndGet is example 11.16: as 11.14, with the neighbours alone.
func relaxByPostAndGet(ctx context.Context, c *comm.Comm) {
	l := newLine(ctx, c)
	for !l.converged(ctx) {
		l.updateBoundary()
		check(l.win.Post(ctx, l.group, rma.ModeNoPut))
		check(l.win.Start(ctx, l.group, 0))
		l.getBoundary()
		l.updateCore()
		check(l.win.Complete(ctx))
		check(l.win.Wait(ctx))
	}
	l.finish(ctx)
}
