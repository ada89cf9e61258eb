// Hello lets every rank add one to a counter in rank 0's memory.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/xdprma/xdprma/rma"
)

func main() {
	ctx := context.Background()
	node, err := rma.Join(ctx, rma.Config{})
	check(err)
	win, err := rma.AllocateOf[int64](ctx, node.World(), 1) // one number on each rank
	check(err)

	check(win.Lock(ctx, rma.LockShared, 0))
	before, err := win.Fetch(ctx, 1, 0, rma.At(0), rma.Sum) // adds 1 to number 0 of rank 0
	check(err)
	check(win.Unlock(ctx, 0))
	fmt.Printf("rank %d of %d found %d (%s)\n", node.Rank(), node.Size(), before, node.Mode())

	check(node.World().Barrier(ctx))
	if node.Rank() == 0 {
		fmt.Println("counter:", win.Memory()[0])
	}
	check(win.Free(ctx))
	check(node.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
