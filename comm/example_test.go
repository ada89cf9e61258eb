package comm_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/testjob"
	"github.com/xdprma/xdprma/internal/launch/job"
	"github.com/xdprma/xdprma/rma"
)

// Three ranks, here inside one process, tell each other a byte.
func ExampleComm_AllgatherBytes() {
	const size = 3
	places, stop, err := testjob.Places(size)
	check(err)
	defer stop()
	ctx := context.Background()
	var group sync.WaitGroup
	for rank := range size {
		group.Go(func() {
			job, err := comm.Join(ctx, job.Config{Place: places[rank]})
			check(err)
			world := job.World()
			blocks, err := world.AllgatherBytes(ctx, []byte{byte(10 * world.Rank())})
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

// Two ranks, here inside one process: one sends measurements, and the other learns how
// many there are before it makes room for them.
func ExampleSend() {
	places, stop, err := testjob.Places(2)
	check(err)
	defer stop()
	ctx := context.Background()
	var group sync.WaitGroup
	for rank := range places {
		group.Go(func() {
			job, err := comm.Join(ctx, job.Config{Place: places[rank]})
			check(err)
			world := job.World()
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
			check(world.Barrier(ctx))
			check(job.Close())
		})
	}
	group.Wait()
	// Output: [1.5 2.25 4] from rank 0 with tag 7
}

// Two ranks, here inside one process: one sends a column of its matrix, which the other
// receives as a row of its own.
func ExampleComm_SendBuffer() {
	places, stop, err := testjob.Places(2)
	check(err)
	defer stop()
	const rows, columns = 3, 4
	column, err := datatype.Vector(rows, 1, columns, datatype.Float64)
	check(err)
	check(column.Commit())
	ctx := context.Background()
	var group sync.WaitGroup
	for rank := range places {
		group.Go(func() {
			job, err := comm.Join(ctx, job.Config{Place: places[rank]})
			check(err)
			world := job.World()
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
			check(world.Barrier(ctx))
			check(job.Close())
		})
	}
	group.Wait()
	// Output: [12 22 32]
}

// Three ranks, here inside one process, add up what they have. One leaves in the middle of
// it, and the others do so without it.
func ExampleComm_CreateGroup() {
	const size = 3
	places, stop, err := testjob.Places(size)
	check(err)
	defer stop()
	ctx := context.Background()
	var group sync.WaitGroup
	for rank := range size {
		group.Go(func() {
			job, err := comm.Join(ctx, job.Config{Place: places[rank]})
			check(err)
			world := job.World()
			check(world.Barrier(ctx))
			if rank == 1 {
				check(job.Close())
				return
			}
			sum := []int64{0}
			err = comm.Allreduce(ctx, world, []int64{int64(rank) + 10}, sum, datatype.Sum)
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
			check(comm.Allreduce(ctx, rest, []int64{int64(rank) + 10}, sum, datatype.Sum))
			if rest.Rank() == 0 {
				fmt.Println(rest.Size(), "ranks have", sum[0])
			}
			check(rest.Barrier(ctx))
			check(job.Close())
		})
	}
	group.Wait()
	// Output: 2 ranks have 22
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
