package comm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/testjob"
	"github.com/xdprma/xdprma/internal/launch/job"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

// ending is a way in which a context ends while a call waits.
type ending struct {
	name  string
	cause error
	begin func(parent context.Context) (context.Context, context.CancelFunc)
}

var endings = []ending{
	{"deadline", context.DeadlineExceeded, func(parent context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(parent, 5*time.Millisecond)
	}},
	{"cancelled", context.Canceled, func(parent context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(parent)
		time.AfterFunc(5*time.Millisecond, cancel)
		return ctx, cancel
	}},
}

// ended says what is wrong with err as the error of a call whose context has ended.
func (e ending) ended(err error, op string, rank int) error {
	var m *mpierr.Error
	if !errors.As(err, &m) || m.Op != op || m.Rank != rank || m.Class != mpierr.Timeout || !errors.Is(err, e.cause) || mpierr.ClassOf(err) != mpierr.Timeout {
		return fmt.Errorf("%s, %s: got %v, want an error of %s at rank %d", op, e.name, err, op, rank)
	}
	return nil
}

// fails returns the error of a call that also returns something else.
func fails[T any](_ T, err error) error { return err }

// TestContextEnds ends the context of every call that blocks.
func TestContextEnds(t *testing.T) {
	ctx, jobs := join(t, 2, userspace.Limits{})
	one, two, long := make([]int64, 1), make([]int64, 2), make([]byte, 300_000)
	for _, call := range []struct {
		op   string
		rank int
		call func(ctx context.Context, c *comm.Comm) error
	}{
		{"barrier", -1, func(ctx context.Context, c *comm.Comm) error { return c.Barrier(ctx) }},
		{"allgather", -1, func(ctx context.Context, c *comm.Comm) error { return fails(c.AllgatherBytes(ctx, long)) }},
		{"broadcast", -1, func(ctx context.Context, c *comm.Comm) error { return fails(c.BcastBytes(ctx, nil, 1)) }},
		{"bcast", -1, func(ctx context.Context, c *comm.Comm) error { return comm.Bcast(ctx, c, one, 1) }},
		{"gather", -1, func(ctx context.Context, c *comm.Comm) error { return comm.Gather(ctx, c, one, two, 0) }},
		{"gather", -1, func(ctx context.Context, c *comm.Comm) error { return comm.Gather(ctx, c, long, nil, 1) }},
		{"scatter", -1, func(ctx context.Context, c *comm.Comm) error { return comm.Scatter(ctx, c, two, one, 1) }},
		{"allgather", -1, func(ctx context.Context, c *comm.Comm) error { return comm.Allgather(ctx, c, one, two) }},
		{"alltoall", -1, func(ctx context.Context, c *comm.Comm) error { return comm.Alltoall(ctx, c, two, make([]int64, 2)) }},
		{"reduce", -1, func(ctx context.Context, c *comm.Comm) error {
			return comm.Reduce(ctx, c, one, two[:1], datatype.Sum, 0)
		}},
		{"allreduce", -1, func(ctx context.Context, c *comm.Comm) error {
			return comm.Allreduce(ctx, c, one, two[:1], datatype.Sum)
		}},
		{"comm split", -1, func(ctx context.Context, c *comm.Comm) error { return fails(c.Split(ctx, 0, 0)) }},
		{"comm dup", -1, func(ctx context.Context, c *comm.Comm) error { return fails(c.Dup(ctx)) }},
		{"comm create", -1, func(ctx context.Context, c *comm.Comm) error { return fails(c.Create(ctx, c.Group())) }},
		{"comm split_type", -1, func(ctx context.Context, c *comm.Comm) error { return fails(c.SplitHost(ctx, 0)) }},
		{"send", 1, func(ctx context.Context, c *comm.Comm) error { return comm.Send(ctx, c, long, 1, 0) }},
		{"recv", 1, func(ctx context.Context, c *comm.Comm) error { return fails(comm.Recv(ctx, c, one, 1, 0)) }},
		{"recv", -1, func(ctx context.Context, c *comm.Comm) error {
			return fails(comm.Recv(ctx, c, one, comm.AnySource, 0))
		}},
		{"probe", 1, func(ctx context.Context, c *comm.Comm) error { return fails(c.Probe(ctx, 1, 0)) }},
		{"sendrecv", 1, func(ctx context.Context, c *comm.Comm) error {
			return fails(comm.Sendrecv(ctx, c, one, 1, 0, two, 1, 0))
		}},
		{"sendrecv", 1, func(ctx context.Context, c *comm.Comm) error {
			return fails(comm.Sendrecv(ctx, c, long, 1, 0, two, 1, 0))
		}},
		{"wait", -1, func(ctx context.Context, c *comm.Comm) error {
			r, err := comm.Irecv(ctx, c, one, 1, 0, nil)
			if err != nil {
				return err
			}
			return r.Wait(ctx)
		}},
		{"wait", -1, func(ctx context.Context, c *comm.Comm) error {
			r, err := comm.Irecv(ctx, c, one, 1, 0, nil)
			if err != nil {
				return err
			}
			return comm.WaitAll(ctx, nil, r)
		}},
		{"wait_any", -1, func(ctx context.Context, c *comm.Comm) error {
			r, err := comm.Irecv(ctx, c, one, 1, 0, nil)
			if err != nil {
				return err
			}
			return fails(comm.WaitAny(ctx, r))
		}},
		{"wait_some", -1, func(ctx context.Context, c *comm.Comm) error {
			r, err := comm.Irecv(ctx, c, one, 1, 0, nil)
			if err != nil {
				return err
			}
			return fails(comm.WaitSome(ctx, r))
		}},
	} {
		for _, e := range endings {
			// Of its own, since a collective that is given up breaks it.
			if err := errors.Join(each(jobs, func(j *comm.Job) error {
				c, err := j.World().Dup(ctx)
				if err != nil || j.Rank() == 1 {
					return err
				}
				short, cancel := e.begin(ctx)
				defer cancel()
				return e.ended(call.call(short, c), call.op, call.rank)
			})...); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestContextEndsUnmet ends the context of calls that wait for a rank to join, and of
// Join, which waits for the rendezvous.
func TestContextEndsUnmet(t *testing.T) {
	places, stop, err := testjob.Places(2)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	j, err := comm.Join(t.Context(), job.Config{Place: places[0]})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	one := make([]int64, 1)
	for op, call := range map[string]func(ctx context.Context) error{
		"send":     func(ctx context.Context) error { return comm.Send(ctx, j.World(), one, 1, 0) },
		"recv":     func(ctx context.Context) error { return fails(comm.Recv(ctx, j.World(), one, 1, 0)) },
		"probe":    func(ctx context.Context) error { return fails(j.World().Probe(ctx, 1, 0)) },
		"sendrecv": func(ctx context.Context) error { return fails(comm.Sendrecv(ctx, j.World(), one, 0, 0, one, 1, 0)) },
	} {
		for _, e := range endings {
			short, cancel := e.begin(t.Context())
			failed := call(short)
			if err := e.ended(failed, op, 1); err != nil {
				t.Error(err)
			} else if !strings.Contains(failed.Error(), "rank 1 of the job has not joined") {
				t.Errorf("%v does not say what it waited for", failed)
			}
			cancel()
		}
	}
	short, cancel := endings[0].begin(t.Context())
	if err := j.World().Barrier(short); err == nil || !strings.Contains(err.Error(), "rank 1 of the job has not joined") {
		t.Errorf("%v does not say what the barrier waited for", err)
	}
	cancel()
	places[1].Rendezvous = "127.0.0.1:1" // nobody is there
	for _, e := range endings {
		short, cancel := e.begin(t.Context())
		_, err := comm.Join(short, job.Config{Place: places[1]})
		if err := e.ended(err, "join", 1); err != nil {
			t.Error(err)
		}
		cancel()
	}
}

// TestErrorRanks fails in many ways on a communicator whose ranks are not those of the
// job: errors name its ranks.
func TestErrorRanks(t *testing.T) {
	t.Parallel() // the most of it is waiting
	const size = 4
	ctx, jobs := join(t, size, soon)
	at := func(what string, rank int, err error, classes ...mpierr.Class) error {
		var e *mpierr.Error
		if errors.As(err, &e) && e.Rank == rank {
			for _, class := range classes {
				if e.Class == class {
					return nil
				}
			}
		}
		return fmt.Errorf("%s: got %v, want %v at rank %d", what, err, classes, rank)
	}
	comms, given := make([]*comm.Comm, size), make([]*comm.Comm, size)
	if err := errors.Join(each(jobs, func(j *comm.Job) error {
		c, err := j.World().Split(ctx, 0, -j.Rank())
		if err != nil {
			return err
		}
		comms[c.Rank()] = c
		wrong, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if given[c.Rank()], err = c.Dup(ctx); err != nil {
			return err
		}
		switch c.Rank() {
		case 0:
			err = comm.Send(ctx, c, make([]int64, 2), 1, 1)
		case 1:
			err = at("truncated", 0, fails(comm.Recv(ctx, c, make([]int64, 1), 0, 1)), mpierr.Truncate)
		}
		if err != nil {
			return err
		}
		length := 1
		if c.Rank() == 1 {
			length = 2 // a mistake
		}
		if err := comm.Bcast(ctx, wrong, make([]int64, length), 0); err != nil || length == 2 {
			if err := at("bcast", 0, err, mpierr.Count, mpierr.ProcFailed); err != nil {
				return err
			}
		}
		if err := at("broken", 0, wrong.Barrier(ctx), mpierr.ProcFailed); err != nil {
			return err
		}
		return c.Barrier(ctx)
	})...); err != nil {
		t.Fatal(err)
	}
	none, cancel := context.WithCancel(ctx)
	cancel()
	if err := at("given up", -1, given[2].Barrier(none), mpierr.Timeout); err != nil {
		t.Error(err)
	}
	if err := errors.Join(each(given, func(c *comm.Comm) error {
		return at("given up by another", 2, c.Barrier(ctx), mpierr.ProcFailed)
	})...); err != nil {
		t.Error(err)
	}
	const dead = 3 // rank 0 of the job
	_ = jobs[0].Poller().Close()
	if err := errors.Join(each(comms[:dead], func(c *comm.Comm) error {
		return errors.Join(
			at("recv", dead, fails(comm.Recv(ctx, c, make([]int64, 1), dead, 1)), mpierr.ProcFailed),
			at("recv from any", dead, fails(comm.Recv(ctx, c, make([]int64, 1), comm.AnySource, 1)), mpierr.ProcFailed),
			at("send", dead, comm.Send(ctx, c, make([]int64, 1), dead, 1), mpierr.ProcFailed),
			at("barrier", dead, c.Barrier(ctx), mpierr.ProcFailed),
		)
	})...); err != nil {
		t.Fatal(err)
	}
}
