package comm_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

// Three ranks, here inside one process, tell each other a byte.
func ExampleComm_AllgatherBytes() {
	check(rmatest.Job(3, func(ctx context.Context, node *rma.Node) error {
		world := node.World()
		blocks, err := world.AllgatherBytes(ctx, []byte{byte(10 * world.Rank())})
		check(err)
		if world.Rank() == 0 {
			fmt.Println(blocks)
		}
		return world.Barrier(ctx)
	}))
	// Output: [[0] [10] [20]]
}

// Two ranks, here inside one process: one sends measurements, and the other learns how
// many there are before it makes room for them.
func ExampleSend() {
	check(rmatest.Job(2, func(ctx context.Context, node *rma.Node) error {
		world := node.World()
		if world.Rank() == 0 {
			check(comm.Send(ctx, world, []float64{1.5, 2.25, 4}, 1, 7))
		} else {
			status, err := world.Probe(ctx, comm.AnySource, comm.AnyTag)
			check(err)
			values := make([]float64, comm.CountOf[float64](status))
			_, err = comm.Recv(ctx, world, values, status.Source, status.Tag)
			check(err)
			fmt.Println(values, "from rank", status.Source, "with tag", status.Tag)
		}
		return world.Barrier(ctx)
	}))
	// Output: [1.5 2.25 4] from rank 0 with tag 7
}

// Two ranks, here inside one process: one sends a column of its matrix, which the other
// receives as a row of its own.
func ExampleComm_SendBuffer() {
	const rows, columns = 3, 4
	column, err := datatype.Vector(rows, 1, columns, datatype.Float64)
	check(err)
	check(column.Commit())
	check(rmatest.Job(2, func(ctx context.Context, node *rma.Node) error {
		world := node.World()
		if world.Rank() == 0 {
			matrix := []float64{
				11, 12, 13, 14,
				21, 22, 23, 24,
				31, 32, 33, 34,
			}
			check(world.SendBuffer(ctx, buffer.Typed(matrix[1:], 1, column), 1, 0))
		} else {
			row := make([]float64, rows)
			_, err := comm.Recv(ctx, world, row, 0, 0)
			check(err)
			fmt.Println(row)
		}
		return world.Barrier(ctx)
	}))
	// Output: [12 22 32]
}

// Three ranks, here inside one process, add up what they have. One leaves in the middle of
// it, and the others do so without it.
func ExampleComm_CreateGroup() {
	check(rmatest.Job(3, func(ctx context.Context, node *rma.Node) error {
		world := node.World()
		check(world.Barrier(ctx))
		if world.Rank() == 1 {
			return nil
		}
		sum := []int64{0}
		err := comm.Allreduce(ctx, world, []int64{int64(world.Rank()) + 10}, sum, datatype.Sum)
		if !errors.Is(err, rma.ErrProcFailed) {
			panic(err)
		}
		var rest *comm.Comm
		for rest == nil { // a rank may hear that one is gone before it knows which
			alive := world.Group().Difference(world.Failed())
			if rest, err = world.CreateGroup(ctx, alive, 0); err != nil && !errors.Is(err, rma.ErrProcFailed) {
				panic(err)
			}
		}
		check(comm.Allreduce(ctx, rest, []int64{int64(world.Rank()) + 10}, sum, datatype.Sum))
		if rest.Rank() == 0 {
			fmt.Println(rest.Size(), "ranks have", sum[0])
		}
		return rest.Barrier(ctx)
	}))
	// Output: 2 ranks have 22
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
