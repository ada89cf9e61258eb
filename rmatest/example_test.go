package rmatest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

// Three ranks take tickets, over a network that loses one frame of ten.
func ExampleJob() {
	err := rmatest.Job(3, func(ctx context.Context, node *rma.Node) error {
		win, err := rma.Allocate(ctx, node.World(), 8, 8, nil)
		if err != nil {
			return err
		}
		if err := win.LockAll(ctx, 0); err != nil {
			return err
		}
		_, err = rma.Fetch(ctx, win, int64(1), 0, rma.At(0), rma.Sum)
		err = errors.Join(err, win.UnlockAll(ctx), node.World().Barrier(ctx))
		if node.Rank() == 0 {
			fmt.Println("tickets:", rma.Slice[int64](win.Memory())[0])
		}
		return errors.Join(err, win.Free(ctx))
	}, &rmatest.Network{Loss: 0.1})
	fmt.Println("error:", err)
	// Output:
	// tickets: 3
	// error: <nil>
}
