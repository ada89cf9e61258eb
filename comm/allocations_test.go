//go:build !race

// What the race detector adds moves variables to the heap.

package comm_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/xdprma/xdprma/comm"
)

// TestMessagesAllocateNothing counts the allocations of messages to and fro, at both ranks
// together, for they are one process here.
func TestMessagesAllocateNothing(t *testing.T) {
	ctx, jobs := join(t, 2, comm.Limits{})
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
			err := w.SendBuffer(ctx, comm.Of(out), 1, 1)
			if err == nil {
				_, err = w.RecvBuffer(ctx, comm.Of(in), 1, 2)
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
