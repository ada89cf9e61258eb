package buffer_test

import (
	"context"
	"fmt"
	"log"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Rank 0 puts the last column of its matrix into rank 1's window, where it is the first column.
func Example() {
	check(rmatest.Job(2, func(ctx context.Context, node *rma.Node) error {
		win, err := rma.Allocate(ctx, node.World(), 6*4, 4, nil) // 3 rows of 2 numbers
		check(err)
		column, err := datatype.Vector(3, 1, 2, datatype.Int32)
		check(err)
		check(column.Commit())
		if node.Rank() == 0 {
			matrix := []int32{
				1, 2,
				3, 4,
				5, 6,
			}
			check(win.Lock(ctx, rma.LockExclusive, 1))
			check(win.Put(buffer.Typed(matrix[1:], 1, column), 1, rma.At(0).As(1, column)))
			check(win.Unlock(ctx, 1))
		}
		check(node.World().Barrier(ctx))
		if node.Rank() == 1 {
			fmt.Println(rma.Slice[int32](win.Memory()))
		}
		check(column.Free())
		return win.Free(ctx)
	}))
	// Output: [2 0 4 0 6 0]
}

// A slice of numbers is a buffer as it is.
func ExampleOf() {
	b := buffer.Of([]float64{1, 2, 3})
	fmt.Println(b.Len(), "of", b.Basic())
	// Output: 3 of float64
}

// A single number is a buffer too. The counter of rank 0 grows by 5.
func ExampleValue() {
	check(rmatest.Job(1, func(ctx context.Context, node *rma.Node) error {
		win, err := rma.Allocate(ctx, node.World(), 8, 8, nil)
		check(err)
		five, before := int64(5), int64(-1)
		check(win.Lock(ctx, rma.LockShared, 0))
		check(win.FetchAndOp(buffer.Value(&five), buffer.Value(&before), 0, rma.At(0), rma.Sum))
		check(win.Unlock(ctx, 0)) // before is set from here on
		fmt.Println("was", before, "and is", rma.Slice[int64](win.Memory())[0])
		return win.Free(ctx)
	}))
	// Output: was 0 and is 5
}

// Rank 0 sends structs to rank 1.
func ExampleOfStructs() {
	type point struct {
		Name [4]byte
		X, Y float64
	}
	check(rmatest.Job(2, func(ctx context.Context, node *rma.Node) error {
		const tag = 1
		points := []point{{Name: [4]byte{'p'}, X: 1, Y: 2}}
		if node.Rank() == 0 {
			return node.World().SendBuffer(ctx, buffer.OfStructs(points), 1, tag)
		}
		got := make([]point, 1)
		_, err := node.World().RecvBuffer(ctx, buffer.OfStructs(got), 0, tag)
		fmt.Println(got[0].X, got[0].Y)
		return err
	}))
	// Output: 1 2
}
