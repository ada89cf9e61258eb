package comm_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

// TestRequestsAfterClose closes the job of requests that nothing has completed: whichever
// call looks at them ends them.
func TestRequestsAfterClose(t *testing.T) {
	ctx, jobs := join(t, 2, userspace.Limits{})
	w := jobs[0].World()
	if err := errors.Join(each(jobs, func(j *comm.Job) error { return j.World().Barrier(ctx) })...); err != nil {
		t.Fatal(err)
	}
	if err := comm.Send(ctx, jobs[1].World(), []byte("here"), 0, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Probe(ctx, 1, 2); err != nil {
		t.Fatal(err)
	}
	begin := func(tag int, s *comm.Status) *comm.Request {
		r, err := comm.Irecv(ctx, w, make([]byte, 8), 1, tag, s)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	type call func(rs ...*comm.Request) (ended int, err error)
	calls := map[string]call{
		"wait": func(rs ...*comm.Request) (int, error) { return 1, rs[0].Wait(ctx) },
		"test": func(rs ...*comm.Request) (int, error) {
			done, err := rs[0].Test()
			if !done {
				return 0, err
			}
			return 1, err
		},
		"wait_all": func(rs ...*comm.Request) (int, error) { return 2, comm.WaitAll(ctx, rs...) },
		"wait_any": func(rs ...*comm.Request) (int, error) { i, err := comm.WaitAny(ctx, rs...); return i + 1, err },
		"wait_some": func(rs ...*comm.Request) (int, error) {
			indexes, err := comm.WaitSome(ctx, rs...)
			return len(indexes), err
		},
		"test_all": func(rs ...*comm.Request) (int, error) {
			done, err := comm.TestAll(rs...)
			if !done {
				return 0, err
			}
			return 2, err
		},
		"test_any": func(rs ...*comm.Request) (int, error) { i, _, err := comm.TestAny(rs...); return i + 1, err },
		"test_some": func(rs ...*comm.Request) (int, error) {
			indexes, err := comm.TestSome(rs...)
			return len(indexes), err
		},
	}
	requests := map[string][]*comm.Request{}
	for name := range calls {
		requests[name] = []*comm.Request{begin(1, nil), begin(1, nil)}
	}
	var got comm.Status
	there := begin(2, &got)
	_ = jobs[0].Close()
	for name, call := range calls {
		rs := requests[name]
		for first := 0; first < len(rs); {
			n, err := call(rs[first:]...)
			if n == 0 || !errors.Is(err, mpierr.Closed) {
				t.Errorf("%s: %d ended, %v", name, n, err)
				break
			}
			if again := rs[first].Wait(ctx); !errors.Is(again, mpierr.Closed) {
				t.Errorf("a wait after %s: %v", name, again)
			}
			first += n
		}
	}
	if done, err := there.Test(); !done || err != nil || got.Count != 4 {
		t.Errorf("a receive that had completed: %v, %v, %v", done, err, got)
	}
}

// TestRequestsOfManyWaiters has goroutines wait for any or some of the same requests,
// one of which is listed twice: each request ends at one of them, and nobody waits for
// what another one has ended.
func TestRequestsOfManyWaiters(t *testing.T) {
	const messages, waiters = 200, 4
	ctx, jobs := join(t, 2, userspace.Limits{})
	bufs, requests := make([][1]int64, messages), []*comm.Request{nil}
	for i := range bufs {
		r, err := comm.Irecv(ctx, jobs[0].World(), bufs[i][:], 1, i, nil)
		if err != nil {
			t.Fatal(err)
		}
		requests = append(requests, r)
	}
	requests = append(requests, requests[1])
	ended := make(chan int, 2*messages)
	wait := func(n int) error {
		for {
			indexes, err := comm.WaitSome(ctx, requests...)
			if n%2 == 0 {
				var i int
				if i, err = comm.WaitAny(ctx, requests...); i >= 0 {
					indexes = append(indexes, i)
				}
			}
			for _, i := range indexes {
				ended <- i
			}
			if err != nil || len(indexes) == 0 {
				return err
			}
		}
	}
	send := func(int) error {
		for i := range bufs {
			if err := comm.Send(ctx, jobs[1].World(), []int64{int64(i)}, 0, i); err != nil {
				return err
			}
		}
		return nil
	}
	var turn atomic.Int32
	calls := []func(int) error{send}
	for range waiters {
		calls = append(calls, wait)
	}
	for n, err := range each(calls, func(f func(int) error) error { return f(int(turn.Add(1))) }) {
		if err != nil {
			t.Errorf("goroutine %d: %v", n, err)
		}
	}
	close(ended)
	times := make([]int, len(requests))
	for i := range ended {
		times[i]++
	}
	if times[0] != 0 || times[1]+times[messages+1] == 0 {
		t.Errorf("no request ended %d times, the one listed twice %d and %d times", times[0], times[1], times[messages+1])
	}
	for i := range bufs {
		if bufs[i][0] != int64(i) || i > 0 && times[i+1] == 0 {
			t.Errorf("request %d ended %d times with %d", i, times[i+1], bufs[i][0])
		}
	}
}
