//go:build !race

// The race detector's own code moves variables to the heap.

package comm_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/userspace"
)

// TestMessagesAllocateNothing counts the allocations of messages to and fro, at both ranks
// together, for they are one process here.
func TestMessagesAllocateNothing(t *testing.T) {
	ctx, jobs := join(t, 2, userspace.Limits{})
	ctx, cancel := context.WithCancel(ctx)
	echoed := make(chan error)
	go func() { // rank 1
		w, buf := jobs[1].World(), make([]int64, 5000)
		for {
			s, err := comm.Recv(ctx, w, buf, comm.AnySource, comm.AnyTag)
			if err == nil {
				err = comm.Send(ctx, w, buf[:s.Count/8], 0, 2)
			}
			if err != nil {
				echoed <- err
				return
			}
		}
	}()
	w, out, in := jobs[0].World(), make([]int64, 4), make([]int64, 4)
	long := make([]int64, 5000)
	for name, call := range map[string]func() error{
		"send and recv": func() error {
			err := comm.Send(ctx, w, out, 1, 1)
			if err == nil {
				_, err = comm.Recv(ctx, w, in, 1, 2)
			}
			return err
		},
		"messages that are fetched": func() error {
			err := comm.Send(ctx, w, long, 1, 1)
			if err == nil {
				_, err = comm.Recv(ctx, w, long, 1, 2)
			}
			return err
		},
		"buffers": func() error {
			err := w.SendBuffer(ctx, buffer.Of(out), 1, 1)
			if err == nil {
				_, err = w.RecvBuffer(ctx, buffer.Of(in), 1, 2)
			}
			return err
		},
		"sendrecv": func() error {
			_, err := comm.Sendrecv(ctx, w, out, 1, 1, in, comm.AnySource, 2)
			return err
		},
	} {
		for range 50 { // tables grow to their size
			if err := call(); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
		var err error
		if n := testing.AllocsPerRun(200, func() { err = errors.Join(err, call()) }); n != 0 || err != nil {
			t.Errorf("%s: %v allocations, %v", name, n, err)
		}
	}
	cancel()
	if err := <-echoed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestCollectivesAllocateNothing does the same for collectives.
func TestCollectivesAllocateNothing(t *testing.T) {
	ctx, jobs := join(t, 2, userspace.Limits{})
	turn := func(j *comm.Job, in, out, all []int64) error {
		w := j.World()
		return errors.Join(w.Barrier(ctx), comm.Bcast(ctx, w, in, 0), comm.Allreduce(ctx, w, in, out, datatype.Sum),
			comm.Reduce(ctx, w, in, out, datatype.Max, 1), comm.Allgather(ctx, w, in, all), comm.Alltoall(ctx, w, all, all))
	}
	stop := make(chan bool)
	other := make(chan error)
	go func() { // rank 1
		in, out, all := make([]int64, 100), make([]int64, 100), make([]int64, 200)
		for {
			select {
			case <-stop:
				other <- nil
				return
			default:
			}
			if err := turn(jobs[1], in, out, all); err != nil {
				other <- err
				return
			}
		}
	}()
	in, out, all := make([]int64, 100), make([]int64, 100), make([]int64, 200)
	var err error
	call := func() { err = errors.Join(err, turn(jobs[0], in, out, all)) }
	for range 50 {
		call()
	}
	runtime.GC()
	if n := testing.AllocsPerRun(200, call); n != 0 || err != nil {
		t.Errorf("%v allocations, %v", n, err)
	}
	close(stop)
	_ = jobs[0].Close() // ends the turn that rank 1 is in
	<-other
}
