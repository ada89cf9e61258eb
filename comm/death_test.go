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
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/job"
	"github.com/xdprma/xdprma/mpierr"
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
				if j.Rank() == dead {
					return <-died
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
				if errors.Is(err, mpierr.ProcFailed) {
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

// TestLiarEvictsNobody has a rank tell the others that one which lives is lost, before
// another dies. All that live go on together, the one that was said to be lost among them.
func TestLiarEvictsNobody(t *testing.T) {
	const live, liar, dead = 1, 2, 3
	ctx, jobs := join(t, 4, soon)
	meet(ctx, t, jobs)
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		w := j.World()
		if w.Rank() == liar {
			for rank := range 4 {
				if rank != liar {
					w.SayLost(rank, live)
				}
			}
		}
		err := w.Barrier(ctx)
		if w.Rank() == dead {
			return errors.Join(err, die(j))
		}
		for err == nil {
			err = w.Barrier(ctx)
		}
		if !errors.Is(err, mpierr.ProcFailed) {
			return err
		}
		d, err := survive(ctx, w, 0)
		if err != nil {
			return err
		}
		if f, err := w.Failed().Translate([]int{0}, w.Group()); err != nil || f[0] != dead || w.Failed().Size() != 1 || d.Size() != 3 {
			return fmt.Errorf("%d go on, and %d have failed: %v, %w", d.Size(), w.Failed().Size(), f, err)
		}
		return uses(ctx, d)
	})...); err != nil {
		t.Error(err)
	}
}

// TestLaterLifeIsNoMember has a rank leave that only one of the others has met, and start
// again. The other one meets the new process, which lives, and yet goes on without it.
func TestLaterLifeIsNoMember(t *testing.T) {
	const knows, stranger, again = 0, 2, 1
	ctx, places, _ := serve(t, 3)
	var jobs []*comm.Job
	begin := func(rank int) *comm.Job {
		j, err := comm.Join(ctx, job.Config{Place: places[rank]})
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, j)
		return j
	}
	first, second := begin(knows), begin(stranger)
	defer func() { each(jobs, (*comm.Job).Close) }()
	former := begin(again)
	one := make([]byte, 1)
	if err := errors.Join(comm.Send(ctx, former.World(), one, knows, 0), fails(comm.Recv(ctx, first.World(), one, again, 0)), former.Close()); err != nil {
		t.Fatal(err)
	}
	later := begin(again).World()
	if err := comm.Send(ctx, second.World(), one, again, 0); err != nil {
		t.Fatal(err)
	}
	if n := second.World().Failed().Size(); n != 0 {
		t.Fatalf("%d have failed at the rank that knows of nothing", n)
	}
	if err := errors.Join(each([]*comm.Job{first, second}, func(j *comm.Job) error {
		d, err := survive(ctx, j.World(), 0)
		if err != nil {
			return err
		}
		if d.Size() != 2 || d.WorldRank(1) != stranger {
			return fmt.Errorf("%d go on", d.Size())
		}
		return uses(ctx, d)
	})...); err != nil {
		t.Error(err)
	}
	testenv.Await(t, "the later process to find that it is no member", func() bool { return later.Failed().Rank() != comm.Undefined })
}
