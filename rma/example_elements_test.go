package rma_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

// Three ranks, here inside one process, write into each other's memory. Programs get their node
// from rma.Join and are started by `xdprma run` or another launcher.
func Example() {
	check(rmatest.Job(3, func(ctx context.Context, node *rma.Node) error {
		win, err := rma.AllocateOf[int64](ctx, node.World(), 3) // three numbers at each rank
		check(err)
		check(win.LockAll(ctx))
		for target := range node.Size() {
			check(win.PutValue(int64(10*node.Rank()), target, rma.At(node.Rank())))
		}
		check(win.UnlockAll(ctx)) // everything is there
		check(node.World().Barrier(ctx))
		if node.Rank() == 0 {
			fmt.Println(win.Memory())
		}
		return win.Free(ctx)
	}))
	// Output: [0 10 20]
}

// Rank 0 writes into rank 1's memory, and reads a part of it back.
func ExampleWinOf_Put() {
	check(rmatest.Job(2, func(ctx context.Context, node *rma.Node) error {
		win, err := rma.AllocateOf[float64](ctx, node.World(), 4)
		check(err)
		if node.Rank() == 0 {
			got := make([]float64, 2)
			check(win.Lock(ctx, rma.LockExclusive, 1))
			check(win.Put([]float64{1.5, 2.5, 3.5}, 1, rma.At(1)))
			check(win.Flush(ctx, 1)) // the values are there
			check(win.Get(got, 1, rma.At(2)))
			check(win.Unlock(ctx, 1)) // got is filled
			fmt.Println(got)
		}
		return win.Free(ctx)
	}))
	// Output: [2.5 3.5]
}

// A window of structs.
func ExampleAllocateOf() {
	type particle struct {
		Position [2]float64
		Charge   int32
	}
	check(rmatest.Job(2, func(ctx context.Context, node *rma.Node) error {
		win, err := rma.AllocateOf[particle](ctx, node.World(), 10)
		check(err)
		if node.Rank() == 0 {
			check(win.Lock(ctx, rma.LockShared, 1))
			check(win.PutValue(particle{Position: [2]float64{1, 2}, Charge: -1}, 1, rma.At(7)))
			check(win.Unlock(ctx, 1))
		}
		check(node.World().Barrier(ctx))
		if node.Rank() == 1 {
			fmt.Println(win.Memory()[7])
		}
		return win.Free(ctx)
	}))
	// Output: {[1 2] -1}
}

// Ranks take tickets from a counter in rank 0's memory, one after the other.
func ExampleWinOf_Fetch() {
	check(rmatest.Job(3, func(ctx context.Context, node *rma.Node) error {
		win, err := rma.AllocateOf[int64](ctx, node.World(), 1)
		check(err)
		check(win.LockAll(ctx))
		done := 0
		for {
			ticket, err := win.Fetch(ctx, 1, 0, rma.At(0), rma.Sum)
			check(err)
			if ticket >= 100 {
				break
			}
			done++ // work on piece number ticket
		}
		check(win.UnlockAll(ctx))
		all := []int64{0}
		check(comm.Allreduce(ctx, node.World(), []int64{int64(done)}, all, rma.Sum))
		if node.Rank() == 0 {
			fmt.Println(all[0], "pieces")
		}
		return win.Free(ctx)
	}))
	// Output: 100 pieces
}

// Exactly one rank gets the place.
func ExampleWinOf_CompareAndSwap() {
	check(rmatest.Job(3, func(ctx context.Context, node *rma.Node) error {
		win, err := rma.AllocateOf[uint32](ctx, node.World(), 1)
		check(err)
		check(win.LockAll(ctx))
		const free = 0
		_, mine, err := win.CompareAndSwap(ctx, free, uint32(node.Rank()+1), 0, rma.At(0))
		check(err)
		owner, err := win.Load(ctx, 0, rma.At(0))
		check(err)
		if mine {
			fmt.Println("the place is taken by its owner:", owner == uint32(node.Rank()+1))
		}
		check(win.UnlockAll(ctx))
		return win.Free(ctx)
	}))
	// Output: the place is taken by its owner: true
}

// Many small additions do not wait; the unlock completes them all.
func ExampleWinOf_Update() {
	check(rmatest.Job(3, func(ctx context.Context, node *rma.Node) error {
		win, err := rma.AllocateOf[int64](ctx, node.World(), 2)
		check(err)
		check(win.LockAll(ctx))
		for i := range 600 {
			check(win.Update(1, i%3, rma.At(i%2), rma.Sum))
		}
		check(win.UnlockAll(ctx))
		check(node.World().Barrier(ctx))
		if node.Rank() == 2 {
			fmt.Println(win.Memory())
		}
		return win.Free(ctx)
	}))
	// Output: [300 300]
}

// A request tells when one Get is done, while others go on.
func ExampleWinOf_Rget() {
	check(rmatest.Job(2, func(ctx context.Context, node *rma.Node) error {
		win, err := rma.AllocateOf[int32](ctx, node.World(), 4)
		check(err)
		copy(win.Memory(), []int32{1, 2, 3, 4})
		check(node.World().Barrier(ctx))
		parts := [2][]int32{make([]int32, 2), make([]int32, 2)}
		var requests []*comm.Request
		check(win.LockAll(ctx))
		for i, part := range parts {
			r, err := win.Rget(part, 1, rma.At(2*i))
			check(err)
			requests = append(requests, r)
		}
		check(comm.WaitAll(ctx, requests...))
		check(win.UnlockAll(ctx))
		if node.Rank() == 0 {
			fmt.Println(parts)
		}
		return win.Free(ctx)
	}))
	// Output: [[1 2] [3 4]]
}

// Between two fences every rank may write to every other one.
func ExampleWin_Fence() {
	check(rmatest.Job(3, func(ctx context.Context, node *rma.Node) error {
		win, err := rma.AllocateOf[string3](ctx, node.World(), 1)
		check(err)
		check(win.Fence(ctx, rma.ModeNoPrecede))
		next := (node.Rank() + 1) % node.Size()
		check(win.PutValue(string3{'r', 'k', byte('0' + node.Rank())}, next, rma.At(0)))
		check(win.Fence(ctx, rma.ModeNoSucceed))
		if node.Rank() == 0 {
			fmt.Printf("%s\n", win.Memory()[0][:])
		}
		return win.Free(ctx)
	}))
	// Output: rk2
}

type string3 = [3]byte

// Neighbours in a line exchange values, and nobody else has to do with it.
func ExampleWin_Post() {
	check(rmatest.Job(3, func(ctx context.Context, node *rma.Node) error {
		win, err := rma.AllocateOf[int](ctx, node.World(), 2) // from the left, and from the right
		check(err)
		left, right := node.Rank()-1, node.Rank()+1
		if left < 0 {
			left = rma.ProcNull
		}
		if right == node.Size() {
			right = rma.ProcNull
		}
		neighbours := []int{left, right}
		check(win.Post(ctx, neighbours))
		check(win.Start(ctx, neighbours))
		check(win.PutValue(node.Rank(), left, rma.At(1)))
		check(win.PutValue(node.Rank(), right, rma.At(0)))
		check(win.Complete(ctx))
		check(win.Wait(ctx)) // the neighbours' values are here
		if node.Rank() == 1 {
			fmt.Println(win.Memory())
		}
		return win.Free(ctx)
	}))
	// Output: [0 2]
}

// Ranks of one host load and store each other's memory.
func ExampleAllocateSharedOf() {
	check(rmatest.Job(2, func(ctx context.Context, node *rma.Node) error {
		host, err := node.World().SplitHost(ctx, 0)
		check(err)
		win, err := rma.AllocateSharedOf[float64](ctx, host, 2)
		check(err)
		check(win.LockAll(ctx))
		copy(win.Memory(), []float64{float64(host.Rank()), 0.5})
		check(win.Sync())
		check(host.Barrier(ctx))
		check(win.Sync())
		theirs, err := win.Shared(1 - host.Rank())
		check(err)
		if host.Rank() == 0 {
			fmt.Println(theirs)
		}
		check(host.Barrier(ctx))
		check(win.UnlockAll(ctx))
		return win.Free(ctx)
	}, rmatest.Hosts(1)))
	// Output: [1 0.5]
}

// Info is given as options.
func ExampleNoLocks() {
	check(rmatest.Job(2, func(ctx context.Context, node *rma.Node) error {
		win, err := rma.AllocateOf[int64](ctx, node.World(), 8, rma.NoLocks(), rma.MinAlignment(1<<16), rma.Info{"a key of somebody": "else"})
		check(err)
		if err := win.Lock(ctx, rma.LockShared, 0); node.Rank() == 0 {
			fmt.Println(errors.Is(err, rma.ErrRMASync), win.Info()["mpi_minimum_memory_alignment"])
		}
		return win.Free(ctx)
	}))
	// Output: true 65536
}

// The other ranks hear of a death from the first call that needs the rank, and go on without it.
func Example_death() {
	var network rmatest.Network
	check(rmatest.Job(3, func(ctx context.Context, node *rma.Node) error {
		world := node.World()
		win, err := rma.AllocateOf[int64](ctx, world, 1)
		check(err)
		check(win.LockAll(ctx))
		check(world.Barrier(ctx))
		if node.Rank() == 2 {
			network.Kill(2)
			return nil
		}
		for err == nil { // until it happens
			_, err = win.Fetch(ctx, 1, 2, rma.At(0), rma.Sum)
		}
		if node.Rank() == 0 {
			fmt.Println("rank 2 is dead:", errors.Is(err, rma.ErrProcFailed))
		}
		// The window still serves the others, and new ones are made on their communicator.
		rest, err := world.CreateGroup(ctx, world.Group().Difference(world.Failed()), 0)
		check(err)
		_, err = win.Fetch(ctx, 1, 0, rma.At(0), rma.Sum)
		check(err)
		check(rest.Barrier(ctx))
		if node.Rank() == 0 {
			fmt.Println(rest.Size(), "ranks are left,", win.Memory()[0], "counted")
		}
		_ = errors.Join(win.UnlockAll(ctx), win.Free(ctx)) // these need rank 2
		return nil
	}, &network))
	// Output:
	// rank 2 is dead: true
	// 2 ranks are left, 2 counted
}

// Memory of the program's own, aligned for all calls.
func ExampleCreateOf() {
	check(rmatest.Job(2, func(ctx context.Context, node *rma.Node) error {
		mine := rma.MakeSlice[complex64](4)
		win, err := rma.CreateOf(ctx, node.World(), mine)
		check(err)
		check(win.LockAll(ctx))
		check(win.Accumulate([]complex64{1i, 2}, 1, rma.At(0), rma.Sum))
		check(win.UnlockAll(ctx))
		check(node.World().Barrier(ctx))
		if node.Rank() == 1 {
			fmt.Println(slices.Clone(mine))
		}
		return win.Free(ctx)
	}))
	// Output: [(0+2i) (4+0i) (0+0i) (0+0i)]
}
