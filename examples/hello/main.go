// Hello lets every rank add one to a counter in rank 0's memory.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/rma"
)

func main() {
	ctx := context.Background()
	node, err := rma.Join(ctx, rma.Config{})
	check(err)
	win, err := rma.Allocate(ctx, node.World(), 8, 8, nil) // 8 bytes on each rank
	check(err)

	one, before := int64(1), int64(0)
	check(win.Lock(ctx, rma.LockShared, 0, 0))
	check(win.FetchAndOp(buffer.Value(&one), buffer.Value(&before), 0, rma.At(0), rma.Sum))
	check(win.Unlock(ctx, 0)) // now before is set, and the sum is in rank 0's memory
	fmt.Printf("rank %d of %d found %d (%s)\n", node.Rank(), node.Size(), before, node.Mode())

	check(node.World().Barrier(ctx))
	if node.Rank() == 0 {
		fmt.Println("counter:", rma.Slice[int64](win.Memory())[0])
	}
	check(win.Free(ctx))
	check(node.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
