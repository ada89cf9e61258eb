//go:build !race

// The race detector's own code moves variables to the heap.

package rma_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
)

// TestNoAllocations counts the allocations of the calls on the fast path, at
// origin and target together, for they are one process here.
func TestNoAllocations(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := j.windowsOf(func(int) (int, int) { return 128, 8 }, rma.Counters(2))
	w, told := wins[0], wins[1]
	ctx, times := context.Background(), uint64(0)
	one, old, of := []int64{1}, []int64{0}, rma.View[int64](w)
	vec, err := datatype.Vector(3, 1, 2, datatype.Int64)
	vec = committed(t, vec, err)
	gaps, dense, structs := make([]int64, 5), make([]int64, 3), make([]particle, 1)
	for _, c := range []struct {
		name       string
		begin, end func() error
		call       func() error
	}{
		{"put, flush", lockShared(w), unlock(w), func() error {
			return first(w.Put(buffer.Of(one), 1, rma.At(1)), w.Flush(ctx, 1))
		}},
		{"notified put, wait_notified", lockShared(w), unlock(w), func() error {
			times++
			e1 := first(w.Put(buffer.Of(one), 1, rma.At(1).Notify(1)), w.Notify(ctx, 1, 0), w.FlushLocal(ctx, 1))
			_, e2 := told.WaitNotified(ctx, 0, times)
			_, _, e3 := told.WaitAnyNotified(ctx, times, 0, 1)
			return first(e1, e2, e3)
		}},
		{"get, flush_local", lockShared(w), unlock(w), func() error {
			return first(w.Get(buffer.Of(old), 1, rma.At(1)), w.FlushLocal(ctx, 1))
		}},
		{"accumulate, flush_all", lockShared(w), unlock(w), func() error {
			return first(w.Accumulate(buffer.Of(one), 1, rma.At(1), rma.Sum), w.FlushAll(ctx))
		}},
		{"accumulate, flush_ranks", lockShared(w), unlock(w), func() error {
			return first(w.Accumulate(buffer.Of(one), 1, rma.At(1), rma.Sum), w.FlushRanks(ctx, 1, 1, 1))
		}},
		{"fetch_and_op, flush", lockShared(w), unlock(w), func() error {
			return first(w.FetchAndOp(buffer.Of(one), buffer.Of(old), 1, rma.At(0), rma.Sum), w.Flush(ctx, 1))
		}},
		{"compare_and_swap, flush", lockShared(w), unlock(w), func() error {
			return first(w.CompareAndSwap(buffer.Of(one), buffer.Of(one), buffer.Of(old), 1, rma.At(0)), w.Flush(ctx, 1))
		}},
		{"fetch, swap, load", lockShared(w), unlock(w), func() error {
			_, e1 := rma.Fetch(ctx, w, int64(1), 1, rma.At(0), rma.Sum)
			_, _, e2 := rma.CompareAndSwap(ctx, w, 1, int64(2), 1, rma.At(0))
			_, e3 := rma.Load[int64](ctx, w, 1, rma.At(0))
			return first(e1, e2, e3)
		}},
		{"window of elements", lockShared(w), unlock(w), func() error {
			_, e1 := of.Fetch(ctx, 1, 1, rma.At(0), rma.Sum)
			_, _, e2 := of.CompareAndSwap(ctx, 1, 2, 1, rma.At(0))
			e3 := first(of.PutValue(3, 1, rma.At(1)), of.Update(4, 1, rma.At(1), rma.Sum), of.Put(one, 1, rma.At(2)), of.Get(old, 1, rma.At(2)))
			return first(e1, e2, e3, of.Store(ctx, 5, 1, rma.At(0)), of.Read(ctx, old, 1, rma.At(0)))
		}},
		{"typed put, flush", lockShared(w), unlock(w), func() error {
			return first(w.Put(buffer.Typed(gaps, 1, vec), 1, rma.At(1)), w.Flush(ctx, 1))
		}},
		{"typed get, flush", lockShared(w), unlock(w), func() error {
			return first(w.Get(buffer.Typed(gaps, 1, vec), 1, rma.At(1)), w.Flush(ctx, 1))
		}},
		{"accumulate at a vector, flush", lockShared(w), unlock(w), func() error {
			return first(w.Accumulate(buffer.Of(dense), 1, rma.At(1).As(1, vec), rma.Sum), w.Flush(ctx, 1))
		}},
		{"typed get_accumulate, flush", lockShared(w), unlock(w), func() error {
			return first(w.GetAccumulate(buffer.Of(dense), buffer.Typed(gaps, 1, vec), 1, rma.At(1).As(1, vec), rma.Sum), w.Flush(ctx, 1))
		}},
		{"put of a struct, flush", lockShared(w), unlock(w), func() error {
			return first(w.Put(buffer.OfStructs(structs), 1, rma.At(1)), w.Flush(ctx, 1))
		}},
		{"lock, put, unlock", nothing, nothing, func() error {
			return first(w.Lock(ctx, rma.LockExclusive, 1, 0), w.Put(buffer.Of(one), 1, rma.At(1)), w.Unlock(ctx, 1))
		}},
		{"lock_all, put, unlock_all", nothing, nothing, func() error {
			return first(w.LockAll(ctx, 0), w.Put(buffer.Of(one), 1, rma.At(1)), w.UnlockAll(ctx))
		}},
	} {
		j.must(c.begin())
		for range 50 { // tables grow to their size
			j.must(c.call())
		}
		runtime.GC()
		var err error
		if n := testing.AllocsPerRun(150, func() {
			if e := c.call(); err == nil {
				err = e
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
		j.must(err, c.end())
	}
}

func nothing() error { return nil }
