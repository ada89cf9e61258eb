package rma_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

// TestRequests issues every request-based call many times over, and waits for each
// in one of the ways there are: what it returns is there then.
func TestRequests(t *testing.T) {
	const size, rounds = 3, 12
	j := newJob(t, size, rma.Limits{})
	wins := j.windows(8*64, 8)
	wait := []func(r ...*comm.Request) error{
		func(r ...*comm.Request) error { return comm.WaitAll(j.ctx, r...) },
		func(r ...*comm.Request) error {
			for range r {
				if _, err := comm.WaitAny(j.ctx, r...); err != nil {
					return err
				}
			}
			if i, err := comm.WaitAny(j.ctx, r...); i != -1 || err != nil {
				return fmt.Errorf("wait_any of nothing: %d, %w", i, err)
			}
			return nil
		},
		func(r ...*comm.Request) error {
			for left := len(r) - 1; left > 0; { // one is nil
				done, err := comm.WaitSome(j.ctx, r...)
				if err != nil || len(done) == 0 {
					return fmt.Errorf("wait_some: %v, %w", done, err)
				}
				left -= len(done)
			}
			return nil
		},
		func(r ...*comm.Request) error {
			for {
				if done, err := comm.TestAll(r...); done || err != nil {
					return err
				}
			}
		},
		func(r ...*comm.Request) error {
			for {
				if i, done, err := comm.TestAny(r...); done && i == -1 || err != nil {
					return err
				}
			}
		},
		func(r ...*comm.Request) error {
			for left := len(r) - 1; left > 0; { // one is nil
				done, err := comm.TestSome(r...)
				if err != nil {
					return err
				}
				left -= len(done)
			}
			return nil
		},
	}
	j.each(func(n *rma.Node) error {
		w, target := wins[n.Rank()], (n.Rank()+1)%size
		if err := w.LockAll(j.ctx, 0); err != nil {
			return err
		}
		var r []*comm.Request
		var errs error
		add := func(q *comm.Request, err error) { r, errs = append(r, q), errors.Join(errs, err) }
		for round := range rounds {
			r = nil
			one, zero := int64(1), int64(round)
			v := []int64{int64(100*n.Rank() + round), 7}
			var got, sum, old, swapped int64
			add(w.Rput(buffer.Of(v), target, rma.At(0)))
			add(w.Raccumulate(buffer.Value(&one), target, rma.At(2), rma.Sum))
			if err := w.Flush(j.ctx, target); err != nil { // what follows reads it
				return err
			}
			add(w.Rget(buffer.Value(&got), target, rma.At(0)))
			add(w.RgetAccumulate(buffer.Value(&one), buffer.Value(&sum), target, rma.At(2), rma.NoOp))
			add(w.RfetchAndOp(buffer.Value(&one), buffer.Value(&old), target, rma.At(3), rma.Sum))
			next := zero + 1
			add(w.RcompareAndSwap(buffer.Value(&next), buffer.Value(&zero), buffer.Value(&swapped), target, rma.At(4)))
			if errs != nil {
				return errs
			}
			if err := wait[round%len(wait)](append(r, nil)...); err != nil {
				return err
			}
			if got != v[0] || sum != int64(round+1) || old != int64(round) || swapped != int64(round) {
				return fmt.Errorf("round %d: got %d, %d, %d, %d", round, got, sum, old, swapped)
			}
			for _, q := range append(r, nil) { // over for good
				if done, err := q.Test(); !done || err != nil || q.Wait(j.ctx) != nil {
					return fmt.Errorf("round %d: a request that is over: %v, %w", round, done, err)
				}
			}
		}
		return w.UnlockAll(j.ctx)
	})
}

// TestRequestWaits has a get wait for a lock: its request is not over before, a
// context can end the wait, and the put beside it is done with at once.
func TestRequestWaits(t *testing.T) {
	once(t)
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows(16, 8)
	w, v, got := wins[0], int64(3), int64(0)
	j.must(wins[1].Lock(j.ctx, rma.LockExclusive, 1, 0), w.Lock(j.ctx, rma.LockShared, 1, 0))
	time.Sleep(2 * time.Millisecond) // lets the request for the lock leave by itself
	put, err := w.Rput(buffer.Value(&v), 1, rma.At(0))
	j.must(err, put.Wait(j.ctx))
	get, err := w.Rget(buffer.Value(&got), 1, rma.At(1))
	j.must(err)
	if done, err := get.Test(); done || err != nil {
		t.Errorf("a get without the lock: done %v, %v", done, err)
	}
	short, cancel := context.WithTimeout(j.ctx, 5*time.Millisecond)
	defer cancel()
	if err := get.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's error", err)
	}
	if i, err := comm.WaitAny(short, put, get); i != -1 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait_any: %d, %v", i, err)
	}
	mem := rma.Slice[int64](wins[1].Memory())
	mem[1] = 9
	j.must(wins[1].Unlock(j.ctx, 1), comm.WaitAll(j.ctx, put, get), w.Unlock(j.ctx, 1), wins[1].Sync())
	if got != 9 || mem[0] != 3 {
		t.Errorf("got %d, the window holds %v", got, mem)
	}
}

// TestRequestRefused gives requests what they must refuse, and has one fail at the
// target: its request tells it, and nothing else does.
func TestRequestRefused(t *testing.T) {
	once(t)
	t.Parallel()
	j := newJob(t, 2, soon)
	wins := j.windows(8, 8)
	w, v := wins[0], int64(0)
	var e *rma.Error
	old, is := int64(0), func(err error, class rma.Class, op string) bool {
		return errors.Is(err, class) && errors.As(err, &e) && e.Op == op
	}
	for op, call := range map[string]func() (*comm.Request, error){
		"rput":        func() (*comm.Request, error) { return w.Rput(buffer.Value(&v), 1, rma.At(0)) },
		"rget":        func() (*comm.Request, error) { return w.Rget(buffer.Value(&v), 1, rma.At(0)) },
		"raccumulate": func() (*comm.Request, error) { return w.Raccumulate(buffer.Value(&v), 1, rma.At(0), rma.Sum) },
		"rget_accumulate": func() (*comm.Request, error) {
			return w.RgetAccumulate(buffer.Value(&v), buffer.Value(&old), 1, rma.At(0), rma.Sum)
		},
		"rfetch_and_op": func() (*comm.Request, error) {
			return w.RfetchAndOp(buffer.Value(&v), buffer.Value(&old), 1, rma.At(0), rma.Sum)
		},
		"rcompare_and_swap": func() (*comm.Request, error) {
			return w.RcompareAndSwap(buffer.Value(&v), buffer.Value(&v), buffer.Value(&old), 1, rma.At(0))
		},
	} {
		if r, err := call(); r != nil || !is(err, rma.ErrRMASync, op) {
			t.Errorf("%s outside an epoch: %v", op, err)
		}
	}
	j.each(func(n *rma.Node) error { return wins[n.Rank()].Fence(j.ctx, 0) })
	if _, err := w.Rget(buffer.Value(&v), 1, rma.At(0)); !errors.Is(err, rma.ErrRMASync) {
		t.Errorf("between fences: %v", err)
	}
	j.each(func(n *rma.Node) error { return wins[n.Rank()].Fence(j.ctx, rma.ModeNoSucceed) })
	j.must(w.Lock(j.ctx, rma.LockShared, 1, 0))
	if _, err := w.Rget(buffer.Value(&v), 1, rma.At(1)); !errors.Is(err, rma.ErrRange) {
		t.Errorf("out of range: %v", err)
	}
	none, err := w.Rget(buffer.Value(&v), rma.ProcNull, rma.At(1))
	j.must(err, none.Wait(j.ctx), w.Flush(j.ctx, 1))
	j.nodes[1].Silence()
	get, err := w.Rget(buffer.Value(&v), 1, rma.At(0))
	j.must(err)
	if err := get.Wait(j.ctx); !is(err, rma.ErrProcFailed, "rget") {
		t.Errorf("of a dead target: %v", err)
	}
	if done, err := get.Test(); !done || !errors.Is(err, rma.ErrProcFailed) {
		t.Errorf("tested again: %v, %v", done, err)
	}
}
