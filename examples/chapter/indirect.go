package main

import (
	"context"
	"math/rand/v2"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
)

// Arrays A, B and map are spread over the ranks in blocks of equal length: element
// g of the whole is element g%blockLen of rank g/blockLen.
const blockLen = 16

// valueOfB is element g of B before an example begins.
func valueOfB(g int) float32 { return float32(3*g + 1) }

// blockOfB returns this rank's block of B.
func blockOfB(c *comm.Comm) []float32 {
	b := make([]float32, blockLen)
	for i := range b {
		b[i] = valueOfB(c.Rank()*blockLen + i)
	}
	return b
}

// permutation returns the whole map, the same at every rank, that names every
// element once.
func permutation(c *comm.Comm) []int {
	return rand.New(rand.NewPCG(11, 1)).Perm(c.Size() * blockLen)
}

// blockOf returns this rank's block of a whole array.
func blockOf[T any](whole []T, c *comm.Comm) []T { return whole[c.Rank()*blockLen:][:blockLen] }

// places sorts the indices of a map by the process they lead to: element here[r][k]
// of this rank belongs to element there[r][k] of rank r.
func places(indices []int, ranks int) (here, there [][]int) {
	here, there = make([][]int, ranks), make([][]int, ranks)
	for i, g := range indices {
		r := g / blockLen
		here[r] = append(here[r], i)
		there[r] = append(there[r], g%blockLen)
	}
	return here, there
}

// scattered returns the datatype of single float32 elements at the given places.
func scattered(places []int) *datatype.Type {
	t, err := datatype.IndexedBlock(1, places, datatype.Float32)
	check(err)
	check(t.Commit())
	return t
}

// gatherByDatatype is example 11.1: A = B(map) for a permutation map. Two derived
// datatypes for each process say which of its elements are wanted and where they
// go, so that one get fetches all of them.
func gatherByDatatype(ctx context.Context, c *comm.Comm) {
	a, b, indices := make([]float32, blockLen), blockOfB(c), blockOf(permutation(c), c)
	win, err := rma.Create(ctx, c, rma.BytesOf(b), 4, nil)
	check(err)
	here, there := places(indices, c.Size())

	check(win.Fence(ctx, 0))
	for r := range c.Size() {
		origin, target := scattered(here[r]), scattered(there[r])
		check(win.Get(buffer.Typed(a, 1, origin), r, rma.At(0).As(1, target)))
		check(origin.Free()) // calls in progress keep what they need
		check(target.Free())
	}
	check(win.Fence(ctx, 0))

	for i, g := range indices {
		equal(a[i], valueOfB(g))
	}
	check(win.Free(ctx))
}

// gatherByElement is example 11.2: the same with a get for each element. There is
// less to write, and one operation an element to send.
func gatherByElement(ctx context.Context, c *comm.Comm) {
	a, b, indices := make([]float32, blockLen), blockOfB(c), blockOf(permutation(c), c)
	win, err := rma.Create(ctx, c, rma.BytesOf(b), 4, nil)
	check(err)

	check(win.Fence(ctx, 0))
	for i, g := range indices {
		check(win.Get(buffer.Value(&a[i]), g/blockLen, rma.At(int64(g%blockLen))))
	}
	check(win.Fence(ctx, 0))

	for i, g := range indices {
		equal(a[i], valueOfB(g))
	}
	check(win.Free(ctx))
}

// sumByIndex is example 11.3: B(j) is the sum of all A(i) with map(i) = j, where
// map may name an element several times. As the chapter notes, where it names
// each once it turns the assignment of 11.1 round, and one accumulate a process is
// enough.
func sumByIndex(ctx context.Context, c *comm.Comm) {
	n := c.Size() * blockLen
	random := rand.New(rand.NewPCG(11, 3))
	whole := make([]int, n) // the map of all ranks
	for i := range whole {
		whole[i] = random.IntN(n)
	}
	a, b, indices := blockOfB(c), make([]float32, blockLen), blockOf(whole, c)
	win, err := rma.Create(ctx, c, rma.BytesOf(b), 4, nil)
	check(err)

	check(win.Fence(ctx, 0))
	for i, g := range indices {
		check(win.Accumulate(buffer.Value(&a[i]), g/blockLen, rma.At(int64(g%blockLen)), rma.Sum))
	}
	check(win.Fence(ctx, 0))

	sums := make([]float32, n) // of all ranks, as one process computes them
	for i, g := range whole {
		sums[g] += valueOfB(i)
	}
	for i, sum := range blockOf(sums, c) {
		equal(b[i], sum)
	}

	clear(b)
	whole = permutation(c)
	here, there := places(blockOf(whole, c), c.Size())
	check(win.Fence(ctx, rma.ModeNoPrecede))
	for r := range c.Size() {
		origin, target := scattered(here[r]), scattered(there[r])
		check(win.Accumulate(buffer.Typed(a, 1, origin), r, rma.At(0).As(1, target), rma.Sum))
	}
	check(win.Fence(ctx, rma.ModeNoSucceed))

	for i, g := range whole {
		if g/blockLen == c.Rank() {
			equal(b[g%blockLen], valueOfB(i))
		}
	}
	check(win.Free(ctx))
}
