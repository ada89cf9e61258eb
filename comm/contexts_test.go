package comm_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

// TestDupAtOnce duplicates several communicators of a rank at the same time: no
// message of one is received on another.
func TestDupAtOnce(t *testing.T) {
	const comms = 8
	ctx, jobs := join(t, 2, userspace.Limits{})
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		from := make([]*comm.Comm, comms)
		for i := range from {
			var err error
			if from[i], err = j.World().Dup(ctx); err != nil {
				return err
			}
		}
		for range 20 {
			to := make([]*comm.Comm, comms)
			done := make(chan error)
			for i, c := range from {
				go func() {
					var err error
					to[i], err = c.Dup(ctx)
					done <- err
				}()
			}
			var err error
			for range to {
				err = errors.Join(err, <-done)
			}
			if err != nil {
				return err
			}
			for i, c := range to {
				if j.Rank() == 0 {
					err = errors.Join(err, comm.Send(ctx, c, []int64{int64(i)}, 1, 7))
				}
			}
			for i := comms - 1; i >= 0 && j.Rank() == 1; i-- {
				var got [1]int64
				_, fault := comm.Recv(ctx, to[i], got[:], 0, 7)
				if err = errors.Join(err, fault); got[0] != int64(i) {
					err = errors.Join(err, fmt.Errorf("got a message of communicator %d on %d", got[0], i))
				}
			}
			for _, c := range to {
				err = errors.Join(err, c.Free())
			}
			if err != nil {
				return err
			}
		}
		return nil
	})...); err != nil {
		t.Error(err)
	}
}

// TestBrokenElsewhere gives up a collective on a communicator of some ranks: the others,
// which learn of it, have made theirs in the same way and are not concerned.
func TestBrokenElsewhere(t *testing.T) {
	ctx, jobs := join(t, 4, userspace.Limits{})
	halves := make([]*comm.Comm, len(jobs))
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		half, err := j.World().Split(ctx, j.Rank()/2, 0)
		if err != nil {
			return err
		}
		halves[j.Rank()], err = half.Dup(ctx)
		return errors.Join(err, j.World().Barrier(ctx))
	})...); err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := halves[0].Barrier(cancelled); !errors.Is(err, mpierr.Timeout) {
		t.Fatal(err)
	}
	if err := errors.Join(each(jobs, func(j *comm.Job) error { return j.World().Barrier(ctx) })...); err != nil {
		t.Fatal(err) // what rank 0 sends after the revocation comes after it
	}
	if err := errors.Join(each(jobs[2:], func(j *comm.Job) error { return halves[j.Rank()].Barrier(ctx) })...); err != nil {
		t.Errorf("ranks 2 and 3, which have nothing to do with it: %v", err)
	}
	if err := halves[1].Barrier(ctx); !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("rank 1, which would wait: %v", err)
	}
}

// TestRootAtOneRank passes a root that is no rank at one member: the others are told.
func TestRootAtOneRank(t *testing.T) {
	ctx, jobs := join(t, 3, userspace.Limits{TxFrames: 64, RxFrames: 64})
	for name, call := range map[string]func(c *comm.Comm, root int) error{
		"bcast":     func(c *comm.Comm, root int) error { return comm.Bcast(ctx, c, make([]int64, 4), root) },
		"broadcast": func(c *comm.Comm, root int) error { return fails(c.BcastBytes(ctx, make([]byte, 4), root)) },
		"buffer":    func(c *comm.Comm, root int) error { return c.BcastBuffer(ctx, buffer.Of(make([]int64, 4)), root) },
		"reduce": func(c *comm.Comm, root int) error {
			return comm.Reduce(ctx, c, make([]int64, 4), make([]int64, 4), datatype.Sum, root)
		},
	} {
		for _, wrong := range []int{-1, 3, 1 << 40} {
			for who := range jobs {
				for rank, err := range each(jobs, func(j *comm.Job) error {
					c, err := j.World().Dup(ctx)
					if err != nil {
						return err
					}
					root := 0
					if j.Rank() == who {
						root = wrong
					}
					if err := call(c, root); err != nil {
						return err
					}
					return c.Barrier(ctx)
				}) {
					want := error(mpierr.ProcFailed)
					if rank == who {
						want = mpierr.Rank
					}
					if !errors.Is(err, want) {
						t.Errorf("%s with root %d at rank %d: rank %d got %v, want %v", name, wrong, who, rank, err, want)
					}
				}
			}
		}
	}
}

// TestEndedContextSendsNothing calls a barrier with a context that has ended: the other
// rank does not take that for its part, and is told.
func TestEndedContextSendsNothing(t *testing.T) {
	ctx, jobs := join(t, 2, userspace.Limits{})
	if err := errors.Join(each(jobs, func(j *comm.Job) error { return j.World().Barrier(ctx) })...); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := jobs[0].World().Barrier(ended); !errors.Is(err, mpierr.Timeout) {
		t.Errorf("with the context that has ended: %v", err)
	}
	if err := jobs[1].World().Barrier(ctx); !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("the other rank: %v", err)
	}
}

// TestBusyContextEnds calls a collective while another goroutine is in one on the same
// communicator, and ends its context: both end, at every member.
func TestBusyContextEnds(t *testing.T) {
	ctx, jobs := join(t, 2, userspace.Limits{})
	w := jobs[0].World()
	if err := errors.Join(each(jobs, func(j *comm.Job) error { return j.World().Barrier(ctx) })...); err != nil {
		t.Fatal(err)
	}
	first := make(chan error)
	go func() { first <- w.Barrier(ctx) }()
	testenv.Await(t, "a receive of the first", func() bool {
		e := jobs[0].Poller().Lock()
		defer jobs[0].Poller().Unlock()
		return e.Usage().Receives > 0
	})
	short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	if err := w.Barrier(short); !errors.Is(err, mpierr.Timeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second got %v", err)
	}
	if err := <-first; !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("the first got %v", err)
	}
	err := jobs[1].World().Barrier(ctx) // rank 0's part of it may have come
	if err == nil {
		err = jobs[1].World().Barrier(ctx)
	}
	if !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("rank 1 got %v", err)
	}
}

// TestNeedsAllMembers has rank 0 in a collective with rank 1, which lives and never calls it,
// and rank 2, which has died: the collective fails.
func TestNeedsAllMembers(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, c *comm.Comm) error{
		"barrier": func(ctx context.Context, c *comm.Comm) error { return c.Barrier(ctx) },
		"bcast":   func(ctx context.Context, c *comm.Comm) error { return comm.Bcast(ctx, c, make([]byte, 1<<20), 0) },
		"gather": func(ctx context.Context, c *comm.Comm) error {
			return comm.Gather(ctx, c, make([]byte, 8), make([]byte, 24), 0)
		},
		"dup": func(ctx context.Context, c *comm.Comm) error { return fails(c.Dup(ctx)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, jobs := join(t, 3, soon)
			if err := errors.Join(each(jobs, func(j *comm.Job) error {
				_, err := j.World().AllgatherBytes(ctx, nil)
				return errors.Join(err, j.World().Barrier(ctx))
			})...); err != nil {
				t.Fatal(err)
			}
			_ = jobs[2].Poller().Close()
			err := call(ctx, jobs[0].World())
			var e *mpierr.Error
			if !errors.As(err, &e) || e.Class != mpierr.ProcFailed || e.Rank != 2 {
				t.Errorf("got %v", err)
			}
		})
	}
}
