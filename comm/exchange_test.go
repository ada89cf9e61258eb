package comm_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/launch/job"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

// TestHalfAnExchange has one half of Sendrecv fail while nobody takes part in the other:
// the call ends with the error of the half that failed.
func TestHalfAnExchange(t *testing.T) {
	t.Parallel() // the most of it is waiting
	ctx, jobs := join(t, 3, soon)
	if err := errors.Join(each(jobs, func(j *comm.Job) error { return j.World().Barrier(ctx) })...); err != nil {
		t.Fatal(err)
	}
	_ = jobs[2].Poller().Close()
	w, big, small := jobs[0].World(), make([]byte, 1<<20), make([]byte, 8)
	if _, err := comm.Sendrecv(ctx, w, big, 2, 1, small, 1, 1); !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("to the dead: %v", err)
	}
	if _, err := comm.Sendrecv(ctx, w, small, 2, 1, small, 1, 1); !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("to the dead, who is known to be: %v", err)
	}
	if _, err := comm.Sendrecv(ctx, w, big, 1, 1, small, 2, 1); !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("from the dead: %v", err)
	}
	if err := comm.Send(ctx, jobs[1].World(), make([]byte, 100), 0, 2); err != nil {
		t.Fatal(err)
	}
	if s, err := comm.Sendrecv(ctx, w, big, 1, 1, small, 1, 2); !errors.Is(err, mpierr.Truncate) || s.Count != 100 {
		t.Errorf("a truncated message: %v, %v", s, err)
	}
	// Nothing of them is left that would take the next messages.
	if err := comm.Send(ctx, jobs[1].World(), []byte{7}, 0, 1); err != nil {
		t.Fatal(err)
	}
	if s, err := comm.Recv(ctx, w, small, 1, 1); err != nil || s.Count != 1 || small[0] != 7 {
		t.Errorf("the next message: %v, %v", s, err)
	}
}

// TestIprobeTheDead asks again and again for a message of a rank that was killed before
// this one had anything to do with it.
func TestIprobeTheDead(t *testing.T) {
	t.Parallel() // the most of it is waiting
	ctx, jobs := join(t, 3, soon)
	_ = jobs[1].Poller().Close()
	for {
		_, ok, err := jobs[0].World().Iprobe(1, 1)
		if errors.Is(err, mpierr.ProcFailed) {
			return
		}
		if ok || err != nil || ctx.Err() != nil {
			t.Fatalf("the probe: %v, %v", ok, err)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestGivenUpInTheMiddle has a rank give up a broadcast of much data at any moment. The
// others get what they need or are told that a member has failed, and have their memory
// again.
func TestGivenUpInTheMiddle(t *testing.T) {
	const size, rounds = 4, 8
	for round := range rounds {
		ctx, jobs := join(t, size, userspace.Limits{})
		if err := errors.Join(each(jobs, func(j *comm.Job) error { return j.World().Barrier(ctx) })...); err != nil {
			t.Fatal(err)
		}
		errs := each(jobs, func(j *comm.Job) error {
			mine := ctx
			if j.Rank() == round%size {
				short, cancel := context.WithTimeout(ctx, time.Duration(round)*2*time.Millisecond)
				defer cancel()
				mine = short
			}
			buf := make([]byte, 16<<20)
			err := comm.Bcast(mine, j.World(), buf, 0)
			clear(buf)
			if err == nil {
				err = j.World().Barrier(mine)
			}
			return err
		})
		for rank, err := range errs {
			own := rank == round%size && errors.Is(err, mpierr.Timeout)
			if err != nil && !own && !errors.Is(err, mpierr.ProcFailed) {
				t.Errorf("round %d: rank %d: %v", round, rank, err)
			}
		}
	}
}

// TestRequestsAreLocal begins messages with a rank that has not joined the job, which
// MPI's calls do not wait for. They complete when it has.
func TestRequestsAreLocal(t *testing.T) {
	ctx, places, _ := serve(t, 2)
	first, err := comm.Join(ctx, job.Config{Place: places[0]})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	ended, end := context.WithCancel(ctx)
	end() // a call that waited would notice
	c, got := first.World(), make([]byte, 1)
	send, err := comm.Isend(ended, c, []byte{7}, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	long, err := comm.Isend(ended, c, make([]byte, 1<<20), 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	recv, err := comm.Irecv(ended, c, got, 1, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := comm.Join(ctx, job.Config{Place: places[1]})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	d, b := second.World(), make([]byte, 1<<20)
	if _, err := comm.Recv(ctx, d, b, 0, 2); err != nil {
		t.Error(err)
	}
	if s, err := comm.Recv(ctx, d, b, 0, 1); err != nil || s.Count != 1 || b[0] != 7 {
		t.Errorf("got %v, %d, %v", s, b[0], err)
	}
	if err := comm.Send(ctx, d, []byte{9}, 0, 3); err != nil {
		t.Error(err)
	}
	if err := comm.WaitAll(ctx, send, long, recv); err != nil || got[0] != 9 {
		t.Errorf("got %d, %v", got[0], err)
	}
}
