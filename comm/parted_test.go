package comm_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/launch/job"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

// meet has all ranks of a job begin sessions with each other.
func meet(ctx context.Context, t *testing.T, jobs []*comm.Job) {
	t.Helper()
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		return comm.Allgather(ctx, j.World(), []int64{1}, make([]int64, len(jobs)))
	})...); err != nil {
		t.Fatal(err)
	}
}

// goOn has a rank call survive until the communicator that it gets works.
func goOn(ctx context.Context, w *comm.Comm) (*comm.Comm, error) {
	for {
		d, err := survive(ctx, w, 0)
		if err == nil {
			err = uses(ctx, d)
		}
		if !errors.Is(err, mpierr.ProcFailed) {
			return d, err
		}
	}
}

// TestLostPairParts has two ranks lose each other, whom the others hear. All come to one group
// without the later of the two, which finds itself alone.
func TestLostPairParts(t *testing.T) {
	for _, pair := range [][2]int{{0, 3}, {3, 0}, {1, 2}, {2, 1}, {2, 3}, {0, 1}} {
		t.Run(fmt.Sprint(pair), func(t *testing.T) {
			t.Parallel() // the most of it is waiting
			ctx, jobs := join(t, 4, soon)
			goes := max(pair[0], pair[1])
			meet(ctx, t, jobs)
			jobs[pair[0]].World().Lose(pair[1])
			if err := errors.Join(each(jobs, func(j *comm.Job) error {
				w := j.World()
				var err error
				for err == nil {
					err = w.Barrier(ctx)
				}
				d, err := goOn(ctx, w)
				if err != nil {
					return err
				}
				want := 3
				if w.Rank() == goes {
					want = 1
				}
				if d.Size() != want {
					return fmt.Errorf("rank %d goes on in a group of %d, want %d", w.Rank(), d.Size(), want)
				}
				return nil
			})...); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestGivenUpOnceIsCalledAgain has a rank give a creation up. Then all call again, with the
// same tag, as often as it takes: what is left of earlier calls does not keep them apart.
func TestGivenUpOnceIsCalledAgain(t *testing.T) {
	for quitter := range 3 {
		ctx, jobs := join(t, 3, userspace.Limits{TxFrames: 64, RxFrames: 64, DeadAfter: time.Hour})
		meet(ctx, t, jobs)
		w := jobs[quitter].World()
		over, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		if _, err := w.CreateGroup(over, w.Group(), 0); !errors.Is(err, mpierr.Timeout) {
			t.Errorf("the call that is given up: %v", err)
		}
		cancel()
		if err := errors.Join(each(jobs, func(j *comm.Job) error {
			d, err := survive(ctx, j.World(), 0)
			if err != nil {
				return err
			}
			if n := j.World().Failed().Size(); n != 0 {
				return fmt.Errorf("%d have failed", n)
			}
			return uses(ctx, d)
		})...); err != nil {
			t.Errorf("rank %d gives up: %v", quitter, err)
		}
	}
}

// TestProcessStartedAgain stops the process of a rank before the others start, and starts
// another. This one is a member to all, and stays so when it gives a collective up.
func TestProcessStartedAgain(t *testing.T) {
	const again = 1
	ctx, places, _ := serve(t, 3)
	var jobs []*comm.Job
	defer func() { each(jobs, (*comm.Job).Close) }()
	for i, rank := range []int{again, again, 0, 2} {
		j, err := comm.Join(ctx, job.Config{Place: places[rank], Limits: soon})
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			jobs = append(jobs, j)
		} else if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	meet(ctx, t, jobs)
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		w, short := j.World(), ctx
		if j.Rank() == again {
			over, cancel := context.WithCancel(ctx)
			cancel()
			short = over
		}
		if err := w.Barrier(short); err == nil {
			return errors.New("a barrier that a member has given up has succeeded")
		}
		d, err := survive(ctx, w, 0)
		if err != nil {
			return err
		}
		if d.Size() != 3 {
			return fmt.Errorf("%d go on", d.Size())
		}
		return uses(ctx, d)
	})...); err != nil {
		t.Error(err)
	}
}

// TestGroupsInTwoOrdersAgree has survivors of a lost pair go on in two communicators at once,
// of which one has the ranks the other way round. Both lose the same rank.
func TestGroupsInTwoOrdersAgree(t *testing.T) {
	for _, pair := range [][2]int{{0, 4}, {2, 1}} {
		ctx, jobs := join(t, 5, soon)
		goes := max(pair[0], pair[1])
		meet(ctx, t, jobs)
		reversed := make([]*comm.Comm, len(jobs))
		if err := errors.Join(each(jobs, func(j *comm.Job) (err error) {
			reversed[j.Rank()], err = j.World().Split(ctx, 0, -j.Rank())
			return err
		})...); err != nil {
			t.Fatal(err)
		}
		jobs[pair[0]].World().Lose(pair[1])
		if err := errors.Join(each(jobs, func(j *comm.Job) error {
			return errors.Join(each([]*comm.Comm{j.World(), reversed[j.Rank()]}, func(c *comm.Comm) error {
				var err error
				for err == nil {
					err = c.Barrier(ctx)
				}
				d, err := goOn(ctx, c)
				if err != nil {
					return err
				}
				if want := map[bool]int{true: 1, false: 4}[j.Rank() == goes]; d.Size() != want {
					return fmt.Errorf("rank %d goes on in a group of %d, want %d", j.Rank(), d.Size(), want)
				}
				return nil
			})...)
		})...); err != nil {
			t.Errorf("%v have lost each other: %v", pair, err)
		}
	}
}

// TestManyGivenUpCallsKeepNobodyApart has a rank give up more calls than others remember the
// ends of, while these do not call.
func TestManyGivenUpCallsKeepNobodyApart(t *testing.T) {
	for quitter := range 2 {
		ctx, jobs := join(t, 3, userspace.Limits{TxFrames: 64, RxFrames: 64, DeadAfter: time.Hour})
		meet(ctx, t, jobs)
		w := jobs[quitter].World()
		for range 300 {
			over, cancel := context.WithTimeout(ctx, time.Millisecond)
			if _, err := w.CreateGroup(over, w.Group(), 0); err == nil {
				t.Fatal("a group has come together without its members")
			}
			cancel()
		}
		if err := errors.Join(each(jobs, func(j *comm.Job) error {
			d, err := survive(ctx, j.World(), 0)
			if err != nil {
				return err
			}
			return uses(ctx, d)
		})...); err != nil {
			t.Errorf("rank %d gives up: %v", quitter, err)
		}
	}
}
