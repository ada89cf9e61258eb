package comm_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/testjob"
)

// Three ranks, here inside one process, tell each other a byte.
func ExampleComm_AllGather() {
	const size = 3
	places, stop, err := testjob.Places(size)
	check(err)
	defer stop()
	ctx := context.Background()
	var group sync.WaitGroup
	for rank := range size {
		group.Go(func() {
			job, err := comm.Join(ctx, comm.Options{Place: places[rank]})
			check(err)
			world := job.World()
			blocks, err := world.AllGather(ctx, []byte{byte(10 * world.Rank())})
			check(err)
			if world.Rank() == 0 {
				fmt.Println(blocks)
			}
			check(world.Barrier(ctx))
			check(job.Close())
		})
	}
	group.Wait()
	// Output: [[0] [10] [20]]
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
