package vmtests

import (
	"fmt"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
)

func made(t *datatype.Type, err error) *datatype.Type {
	if err == nil {
		err = t.Commit()
	}
	if err != nil {
		panic(err)
	}
	return t
}

// datatypes has every rank transpose a matrix into every rank's window, read it
// back through another layout, add to the inside of it, and take part in a search
// for the largest values and their places.
func datatypes(s *self, win *rma.Win) error {
	const n = 200 // rows and columns
	type row = [n]int64
	const half = largest / 2
	column := made(datatype.Resized(made(datatype.Vector(n, 1, n, datatype.Int64)), 0, 8))
	inside := made(datatype.Subarray([]int{n, n}, []int{n - 2, n - 5}, []int{1, 2}, datatype.OrderC, datatype.Int64))
	var at []int
	for i := range n * n / 3 {
		at = append(at, 3*i+i%3)
	}
	scattered := made(datatype.IndexedBlock(1, at, datatype.Int64)) // too irregular for one definition
	value := func(from, to, i, k int) int64 { return int64(from)<<40 + int64(to)<<32 + int64(i*n+k) }
	matrix, back := make([]row, n), make([]row, n)
	ones := make([]int64, (n-2)*(n-5))
	for i := range ones {
		ones[i] = 1
	}
	place := rma.At(int64(s.rank * largest))
	for to := range s.size {
		for i := range matrix {
			for k := range matrix[i] {
				matrix[i][k] = value(s.rank, to, i, k)
			}
		}
		few := make([]int64, len(at))
		err := all(
			func() error { return win.Lock(s.ctx, rma.LockShared, to, 0) },
			func() error { return win.Put(buffer.OfStructs(matrix), to, place.As(n, column)) },
			func() error { return win.Flush(s.ctx, to) },
			func() error { return win.Get(buffer.Typed(back, n, column), to, place.As(n*n, datatype.Int64)) },
			func() error { return win.Get(buffer.Of(few), to, place.As(1, scattered)) },
			func() error { return win.Flush(s.ctx, to) },
			func() error { return win.Accumulate(buffer.Of(ones), to, place.As(1, inside), rma.Sum) },
			func() error { return win.Unlock(s.ctx, to) },
		)
		if err != nil {
			return fmt.Errorf("rank %d: %w", to, err)
		}
		for i := range matrix {
			if back[i] != matrix[i] {
				return fmt.Errorf("row %d from rank %d is not what was put there", i, to)
			}
		}
		for i, v := range few {
			if want := matrix[at[i]%n][at[i]/n]; v != want {
				return fmt.Errorf("word %d from rank %d is %#x, want %#x", at[i], to, v, want)
			}
		}
	}
	pairs := make([]datatype.Pair[int64], 500)
	for i := range pairs {
		pairs[i] = datatype.Pair[int64]{Value: int64((i+1)*(s.rank*37%11+1)) % 101, Index: int32(s.rank)}
	}
	err := all(
		func() error { return win.Lock(s.ctx, rma.LockShared, 0, 0) },
		func() error { return win.Accumulate(buffer.Of(pairs), 0, rma.At(half), rma.MaxLoc) },
		func() error { return win.Unlock(s.ctx, 0) },
		func() error { return s.world.Barrier(s.ctx) },
	)
	if err != nil {
		return err
	}
	for from := range s.size {
		words := rma.Slice[int64](win.Memory()[from*largest:][:n*n*8])
		for i := range n {
			for k := range n {
				want := value(from, s.rank, k, i)
				if i >= 1 && i < n-1 && k >= 2 && k < n-3 {
					want++
				}
				if v := words[i*n+k]; v != want {
					return fmt.Errorf("row %d, column %d of rank %d's matrix is %#x, want %#x", i, k, from, v, want)
				}
			}
		}
	}
	if s.rank != 0 {
		return nil
	}
	words := rma.Slice[int64](win.Memory()[half:][:16*len(pairs)])
	for i := range pairs {
		best, index := int64(0), int64(0)
		for r := range s.size {
			if v := int64((i+1)*(r*37%11+1)) % 101; v > best {
				best, index = v, int64(r)
			}
		}
		if v, at := words[2*i], int64(int32(words[2*i+1])); v != best || at != index {
			return fmt.Errorf("largest value %d is %d at rank %d, want %d at rank %d", i, v, at, best, index)
		}
	}
	return nil
}
