package rma_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

// ranks runs program as two ranks inside this process. Programs call rma.Join with
// an empty Config instead, and are started by `xdprma run`.
func ranks(program func(ctx context.Context, node *rma.Node)) {
	check(rmatest.Job(2, func(ctx context.Context, node *rma.Node) error {
		program(ctx, node)
		return nil
	}))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Both ranks add to a counter in rank 0's memory.
func Example_fetchAndOp() {
	err := rmatest.Job(2, func(ctx context.Context, node *rma.Node) error {
		win, err := rma.Allocate(ctx, node.World(), 8, 8, nil)
		check(err)
		ten, before := int64(10), int64(0)
		check(win.Lock(ctx, rma.LockShared, 0, 0))
		check(win.FetchAndOp(buffer.Value(&ten), buffer.Value(&before), 0, rma.At(0), rma.Sum))
		check(win.Unlock(ctx, 0)) // before is set from here on
		check(node.World().Barrier(ctx))
		if node.Rank() == 0 {
			fmt.Println(rma.Slice[int64](win.Memory())[0])
		}
		return win.Free(ctx)
	})
	check(err)
	// Output: 20
}

// Each rank takes tickets from a counter in rank 0's memory, one after the other.
func ExampleFetch() {
	ranks(func(ctx context.Context, node *rma.Node) {
		win, err := rma.Allocate(ctx, node.World(), 8, 8, nil)
		check(err)
		check(win.LockAll(ctx, 0))
		for {
			ticket, err := rma.Fetch(ctx, win, int64(1), 0, rma.At(0), rma.Sum)
			check(err)
			if ticket >= 100 {
				break
			}
			// work on piece number ticket
		}
		check(node.World().Barrier(ctx))
		taken, err := rma.Load[int64](ctx, win, 0, rma.At(0))
		check(err)
		check(win.UnlockAll(ctx))
		if node.Rank() == 0 {
			fmt.Println(taken - int64(node.Size()))
		}
		check(win.Free(ctx))
	})
	// Output: 100
}

// Rank 0 writes into rank 1's memory and reads it back.
func ExampleWin_Put() {
	ranks(func(ctx context.Context, node *rma.Node) {
		win, err := rma.Allocate(ctx, node.World(), 3*8, 8, nil)
		check(err)
		if node.Rank() == 0 {
			got := make([]float64, 2)
			check(win.Lock(ctx, rma.LockExclusive, 1, 0))
			check(win.Put(buffer.Of([]float64{1.5, 2.5}), 1, rma.At(1)))
			check(win.Flush(ctx, 1)) // the put has taken effect
			check(win.Get(buffer.Of(got), 1, rma.At(1)))
			check(win.Unlock(ctx, 1)) // got is filled
			fmt.Println(got)
		}
		check(node.World().Barrier(ctx))
		if node.Rank() == 1 {
			fmt.Println(rma.Slice[float64](win.Memory()))
		}
		check(win.Free(ctx))
	})
	// Output:
	// [1.5 2.5]
	// [0 1.5 2.5]
}

// Each rank adds a vector to one in rank 1's memory. Accumulates need no exclusive
// lock: each element is updated atomically.
func ExampleWin_Accumulate() {
	ranks(func(ctx context.Context, node *rma.Node) {
		win, err := rma.Allocate(ctx, node.World(), 3*4, 4, nil)
		check(err)
		check(win.LockAll(ctx, 0))
		check(win.Accumulate(buffer.Of([]int32{1, 2, 3}), 1, rma.At(0), rma.Sum))
		check(win.UnlockAll(ctx))
		check(node.World().Barrier(ctx))
		if node.Rank() == 1 {
			fmt.Println(rma.Slice[int32](win.Memory()))
		}
		check(win.Free(ctx))
	})
	// Output: [2 4 6]
}

// Rank 0 writes a column of a matrix that lies row by row in rank 1's memory, and
// reads the inside of the matrix back.
func ExampleLocation_As() {
	ranks(func(ctx context.Context, node *rma.Node) {
		const rows, columns = 3, 4
		win, err := rma.Allocate(ctx, node.World(), rows*columns*8, 8, nil)
		check(err)
		if node.Rank() == 0 {
			column, err := datatype.Vector(rows, 1, columns, datatype.Float64)
			check(err)
			check(column.Commit())
			corner, err := datatype.Subarray([]int{rows, columns}, []int{2, 3}, []int{1, 1}, datatype.OrderC, datatype.Float64)
			check(err)
			check(corner.Commit())
			got := make([]float64, 6)
			check(win.Lock(ctx, rma.LockExclusive, 1, 0))
			check(win.Put(buffer.Of([]float64{1, 2, 3}), 1, rma.At(2).As(1, column)))
			check(win.Flush(ctx, 1))
			check(win.Get(buffer.Of(got), 1, rma.At(0).As(1, corner)))
			check(win.Unlock(ctx, 1))
			fmt.Println(got)
		}
		check(win.Free(ctx))
	})
	// Output: [0 2 0 0 3 0]
}

// A struct is put whole, and one field of many is read as a column.
func ExampleOfStructs() {
	type point struct {
		Name [4]byte
		X, Y float64
	}
	ranks(func(ctx context.Context, node *rma.Node) {
		win, err := rma.Allocate(ctx, node.World(), 100*24, 24, nil)
		check(err)
		if node.Rank() == 0 {
			check(win.Lock(ctx, rma.LockExclusive, 1, 0))
			check(win.Put(buffer.OfStructs([]point{{X: 1, Y: 2}, {X: 3, Y: 4}}), 1, rma.At(5)))
			check(win.Flush(ctx, 1))
			ys, err := datatype.HindexedBlock(1, []int{16, 24 + 16}, datatype.Float64)
			check(err)
			check(ys.Commit())
			got := make([]float64, 2)
			check(win.Get(buffer.Of(got), 1, rma.At(5).As(1, ys)))
			check(win.Unlock(ctx, 1))
			fmt.Println(got)
		}
		check(win.Free(ctx))
	})
	// Output: [2 4]
}

// Exactly one rank claims a place.
func ExampleWin_CompareAndSwap() {
	claims := make(chan int64, 2)
	ranks(func(ctx context.Context, node *rma.Node) {
		win, err := rma.Allocate(ctx, node.World(), 8, 8, nil)
		check(err)
		free, mine, before := uint64(0), uint64(node.Rank()+1), uint64(0)
		check(win.LockAll(ctx, 0))
		check(win.CompareAndSwap(buffer.Value(&mine), buffer.Value(&free), buffer.Value(&before), 0, rma.At(0)))
		check(win.UnlockAll(ctx))
		if before == free {
			claims <- 1
		}
		check(win.Free(ctx))
	})
	fmt.Println(len(claims), "rank has it")
	// Output: 1 rank has it
}

// Errors carry a class of the standard.
func ExampleError() {
	ranks(func(ctx context.Context, node *rma.Node) {
		win, err := rma.Allocate(ctx, node.World(), 8, 8, nil)
		check(err)
		if node.Rank() == 0 {
			check(win.Lock(ctx, rma.LockShared, 1, 0))
			err := win.Put(buffer.Of([]int64{1, 2}), 1, rma.At(0))
			fmt.Println(errors.Is(err, rma.ErrRange))
			fmt.Println(err)
			check(win.Unlock(ctx, 1))
		}
		check(win.Free(ctx))
	})
	// Output:
	// true
	// put (rank 1): outside the window: bytes 0 to 16 of a window of 8 bytes
}

// Rank 1 exposes memory that it already has, and tells rank 0 where it is.
func ExampleCreateDynamic() {
	ranks(func(ctx context.Context, node *rma.Node) {
		win, err := rma.CreateDynamic(ctx, node.World(), nil)
		check(err)
		series := []float64{1, 2, 3, 4}
		address := rma.Address(buffer.Of(series))
		if node.Rank() == 1 {
			check(win.Attach(rma.BytesOf(series)))
		}
		// All ranks learn rank 1's address.
		told, err := node.World().BcastBytes(ctx, binary.LittleEndian.AppendUint64(nil, uint64(address)), 1)
		check(err)
		address = int64(binary.LittleEndian.Uint64(told))
		if node.Rank() == 0 {
			third := 0.0
			check(win.Lock(ctx, rma.LockShared, 1, 0))
			check(win.Get(buffer.Value(&third), 1, rma.At(rma.AddAddress(address, 2*8))))
			check(win.Unlock(ctx, 1))
			fmt.Println(third)
		}
		check(win.Free(ctx)) // detaches as well
	})
	// Output: 3
}

// A handler hears of every error of a window's calls, before they return it.
func ExampleWin_SetErrhandler() {
	ranks(func(ctx context.Context, node *rma.Node) {
		win, err := rma.Allocate(ctx, node.World(), 8, 8, nil)
		check(err)
		if node.Rank() == 0 {
			win.SetErrhandler(func(_ *rma.Win, err error) { fmt.Println("told:", rma.ClassOf(err)) })
			_ = win.Put(buffer.Of([]int64{1}), 1, rma.At(0)) // no epoch
		}
		check(win.Free(ctx))
	})
	// Output: told: wrong synchronisation
}
