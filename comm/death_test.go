package comm_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/testenv"
)

// anyCollective calls the collective of c that rng, which is the same at all ranks, draws.
func anyCollective(ctx context.Context, c *comm.Comm, rng *rand.Rand) error {
	n, root := []int{0, 1, 100, 30_000}[rng.IntN(4)], rng.IntN(c.Size())
	one, other, all := make([]int64, n), make([]int64, n), make([]int64, n*c.Size())
	switch rng.IntN(9) {
	case 0:
		return c.Barrier(ctx)
	case 1:
		return comm.Bcast(ctx, c, one, root)
	case 2:
		return comm.Gather(ctx, c, one, all, root)
	case 3:
		return comm.Scatter(ctx, c, all, one, root)
	case 4:
		return comm.Allgather(ctx, c, one, all)
	case 5:
		return comm.Alltoall(ctx, c, all, make([]int64, len(all)))
	case 6:
		return comm.Reduce(ctx, c, one, other, datatype.Sum, root)
	case 7:
		return comm.Allreduce(ctx, c, one, other, datatype.Sum)
	}
	d, err := c.Split(ctx, rng.IntN(2), 0)
	if err != nil {
		return err
	}
	return errors.Join(d.Barrier(ctx), d.Free())
}

// TestDeathAtAnyTimeEndsCollectives has a rank vanish at a random moment while all are in
// collectives: each of the others is told, and goes on without it, or is told why not. On a
// busy machine, those that live may take each other for dead too.
func TestDeathAtAnyTimeEndsCollectives(t *testing.T) {
	for seed := range testenv.Seeds(12, 2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel() // the most of it is waiting
			size := 2 + int(seed%4)
			dead := int(seed/4) % size
			ctx, jobs := join(t, size, soon)
			moment := time.Duration(rand.New(rand.NewPCG(seed, 1)).IntN(8000)) * time.Microsecond
			died := make(chan error, 1)
			err := errors.Join(each(jobs, func(j *comm.Job) error {
				w, rng := j.World(), rand.New(rand.NewPCG(seed, 2))
				if j.Rank() == dead {
					time.AfterFunc(moment, func() { died <- die(j) })
				}
				var err error
				for err == nil {
					err = anyCollective(ctx, w, rng)
				}
				switch {
				case j.Rank() == dead:
					return <-died
				case w.Failed().Rank() != comm.Undefined:
					return nil
				}
				if !errors.Is(err, mpierr.ProcFailed) {
					return err
				}
				short, cancel := context.WithCancel(ctx)
				cancel()
				_ = w.Barrier(short) // all come to know
				d, err := survive(ctx, w, 0)
				if err == nil {
					err = uses(ctx, d)
				}
				if errors.Is(err, mpierr.ProcFailed) || w.Failed().Rank() != comm.Undefined {
					return nil
				}
				return err
			})...)
			if err != nil {
				t.Errorf("seed %d: rank %d of %d vanishes: %v", seed, dead, size, err)
			}
		})
	}
}
