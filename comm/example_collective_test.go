package comm_test

import (
	"context"
	"fmt"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

// Each rank gets the sum of what all have, and the largest.
func ExampleAllreduce() {
	check(rmatest.Job(4, func(ctx context.Context, node *rma.Node) error {
		mine, sum, most := []int64{int64(node.Rank()), 1}, make([]int64, 2), make([]int64, 2)
		check(comm.Allreduce(ctx, node.World(), mine, sum, datatype.Sum))
		check(comm.Allreduce(ctx, node.World(), mine, most, datatype.Max))
		if node.Rank() == 3 {
			fmt.Println(sum, most)
		}
		return nil
	}))
	// Output: [6 4] [3 1]
}

// Rank 0 tells all ranks a parameter, and collects what they have made of it.
func ExampleGather() {
	check(rmatest.Job(3, func(ctx context.Context, node *rma.Node) error {
		parameter := make([]float64, 1)
		if node.Rank() == 0 {
			parameter[0] = 2.5
		}
		check(comm.Bcast(ctx, node.World(), parameter, 0))
		results := make([]float64, node.Size())
		check(comm.Gather(ctx, node.World(), []float64{parameter[0] * float64(node.Rank())}, results, 0))
		if node.Rank() == 0 {
			fmt.Println(results)
		}
		return nil
	}))
	// Output: [0 2.5 5]
}

// In a ring each rank sends to the next one and receives from the one before, at once.
func ExampleSendrecv() {
	check(rmatest.Job(3, func(ctx context.Context, node *rma.Node) error {
		next, before := (node.Rank()+1)%3, (node.Rank()+2)%3
		got := make([]int, 1)
		_, err := comm.Sendrecv(ctx, node.World(), []int{node.Rank()}, next, 0, got, before, 0)
		check(err)
		if node.Rank() == 0 {
			fmt.Println(got)
		}
		return nil
	}))
	// Output: [2]
}

// Receives are begun before the messages are there, and waited for together.
func ExampleWaitAll() {
	check(rmatest.Job(3, func(ctx context.Context, node *rma.Node) error {
		world := node.World()
		if node.Rank() != 0 {
			return comm.Send(ctx, world, []int{10 * node.Rank()}, 0, 0)
		}
		got := [2]int{}
		var requests []*comm.Request
		for i := range got {
			r, err := comm.Irecv(ctx, world, got[i:i+1], i+1, 0, nil)
			check(err)
			requests = append(requests, r)
		}
		check(comm.WaitAll(ctx, requests...))
		fmt.Println(got)
		return nil
	}))
	// Output: [10 20]
}

// Ranks are divided into those with even and those with odd numbers.
func ExampleComm_Split() {
	check(rmatest.Job(5, func(ctx context.Context, node *rma.Node) error {
		half, err := node.World().Split(ctx, node.Rank()%2, node.Rank())
		check(err)
		if node.Rank() == 4 {
			fmt.Println("rank", half.Rank(), "of", half.Size())
		}
		return half.Barrier(ctx)
	}))
	// Output: rank 2 of 3
}
