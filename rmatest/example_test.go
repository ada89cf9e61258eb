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
		win, err := rma.AllocateOf[int64](ctx, node.World(), 1)
		if err != nil {
			return err
		}
		if err := win.LockAll(ctx); err != nil {
			return err
		}
		_, err = win.Fetch(ctx, 1, 0, rma.At(0), rma.Sum)
		err = errors.Join(err, win.UnlockAll(ctx), node.World().Barrier(ctx))
		if node.Rank() == 0 {
			fmt.Println("tickets:", win.Memory()[0])
		}
		return errors.Join(err, win.Free(ctx))
	}, &rmatest.Network{Loss: 0.1})
	fmt.Println("error:", err)
	// Output:
	// tickets: 3
	// error: <nil>
}
