package rma_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
)

// TestRefusedOperations makes every mistake of an operation that the library can
// see, expects the class, and that nothing was written.
func TestRefusedOperations(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	const size, unit = 64, 4
	w := j.windows(size, unit)[0]
	before := bytes.Repeat([]byte{7}, size)
	j.must(w.Lock(j.ctx, rma.LockShared, 1, 0), w.Put(buffer.Bytes(before), 1, rma.At(0)), w.Flush(j.ctx, 1))

	eight, big, one, old := make([]int64, 1), make([]int64, 9), int64(1), int64(0)
	short, float, pair := int32(0), 1.0, make([]int64, 3)
	for _, c := range []struct {
		name  string
		class rma.Class
		call  func() error
	}{
		{"put: negative displacement", rma.ErrDisp, func() error { return w.Put(buffer.Of(eight), 1, rma.At(-1)) }},
		{"get: negative displacement", rma.ErrDisp, func() error { return w.Get(buffer.Of(eight), 1, rma.At(-1)) }},
		{"put: displacement beyond the end", rma.ErrRange, func() error { return w.Put(buffer.Of(eight), 1, rma.At(size/unit)) }},
		{"put: the last bytes beyond the end", rma.ErrRange, func() error { return w.Put(buffer.Of(eight), 1, rma.At(size/unit-1)) }},
		{"put: displacement that overflows", rma.ErrRange, func() error { return w.Put(buffer.Of(eight), 1, rma.At(1<<62)) }},
		{"put: larger than the window", rma.ErrRange, func() error { return w.Put(buffer.Of(big), 1, rma.At(0)) }},
		{"get: larger than the window", rma.ErrRange, func() error { return w.Get(buffer.Of(big), 1, rma.At(0)) }},
		{"put: nothing, beyond the end", rma.ErrRange, func() error { return w.Put(buffer.Bytes(nil), 1, rma.At(size/unit+1)) }},
		{"accumulate: larger than the window", rma.ErrRange, func() error { return w.Accumulate(buffer.Of(big), 1, rma.At(0), rma.Sum) }},
		{"accumulate: unaligned", rma.ErrDisp, func() error { return w.Accumulate(buffer.Of(eight), 1, rma.At(1), rma.Sum) }},
		{"fetch_and_op: unaligned", rma.ErrDisp, func() error { return w.FetchAndOp(buffer.Value(&one), buffer.Value(&old), 1, rma.At(1), rma.Sum) }},
		{"compare_and_swap: unaligned", rma.ErrDisp, func() error {
			return w.CompareAndSwap(buffer.Value(&one), buffer.Value(&one), buffer.Value(&old), 1, rma.At(1))
		}},
		{"accumulate: no_op", rma.ErrOp, func() error { return w.Accumulate(buffer.Of(eight), 1, rma.At(0), rma.NoOp) }},
		{"accumulate: no operator", rma.ErrOp, func() error { return w.Accumulate(buffer.Of(eight), 1, rma.At(0), 99) }},
		{"accumulate: band on floats", rma.ErrOp, func() error { return w.Accumulate(buffer.Value(&float), 1, rma.At(0), rma.BAnd) }},
		{"accumulate: an empty buffer without type", rma.ErrType, func() error { return w.Accumulate(buffer.Buffer{}, 1, rma.At(0), rma.Sum) }},
		{"get_accumulate: two types", rma.ErrType, func() error {
			return w.GetAccumulate(buffer.Value(&float), buffer.Value(&old), 1, rma.At(0), rma.Sum)
		}},
		{"get_accumulate: two lengths", rma.ErrCount, func() error { return w.GetAccumulate(buffer.Of(big), buffer.Value(&old), 1, rma.At(0), rma.Sum) }},
		{"fetch_and_op: several elements", rma.ErrCount, func() error { return w.FetchAndOp(buffer.Of(big), buffer.Of(big), 1, rma.At(0), rma.Sum) }},
		{"fetch_and_op: no element", rma.ErrCount, func() error { return w.FetchAndOp(buffer.Of(big[:0]), buffer.Of(big[:0]), 1, rma.At(0), rma.Sum) }},
		{"compare_and_swap: floats", rma.ErrType, func() error {
			return w.CompareAndSwap(buffer.Value(&float), buffer.Value(&float), buffer.Value(&float), 1, rma.At(0))
		}},
		{"compare_and_swap: two types", rma.ErrType, func() error {
			return w.CompareAndSwap(buffer.Value(&one), buffer.Value(&short), buffer.Value(&old), 1, rma.At(0))
		}},
		{"get_accumulate: buffers that overlap", rma.ErrArg, func() error { return w.GetAccumulate(buffer.Of(pair[:2]), buffer.Of(pair[1:]), 1, rma.At(0), rma.Sum) }},
		{"get_accumulate: buffers that overlap, the datatype at the target named", rma.ErrArg, func() error {
			return w.GetAccumulate(buffer.Of(pair[:2]), buffer.Of(pair[1:]), 1, rma.At(0).As(2, datatype.Int64), rma.Sum)
		}},
		{"fetch_and_op: one buffer for both", rma.ErrArg, func() error { return w.FetchAndOp(buffer.Value(&one), buffer.Value(&one), 1, rma.At(0), rma.Sum) }},
		{"compare_and_swap: one buffer for both", rma.ErrArg, func() error {
			return w.CompareAndSwap(buffer.Value(&one), buffer.Value(&old), buffer.Value(&one), 1, rma.At(0))
		}},
		{"compare_and_swap: several elements", rma.ErrCount, func() error {
			return w.CompareAndSwap(buffer.Of(big), buffer.Value(&one), buffer.Value(&old), 1, rma.At(0))
		}},
		{"put: no value", rma.ErrArg, func() error { return w.Put(buffer.Value[int64](nil), 1, rma.At(0)) }},
		{"get: no value", rma.ErrArg, func() error { return w.Get(buffer.Value[int64](nil), 1, rma.At(0)) }},
		{"accumulate: no value", rma.ErrArg, func() error { return w.Accumulate(buffer.Value[int64](nil), 1, rma.At(0), rma.Sum) }},
		{"get_accumulate: no value", rma.ErrArg, func() error {
			return w.GetAccumulate(buffer.Value(&one), buffer.Value[int64](nil), 1, rma.At(0), rma.Sum)
		}},
		{"fetch_and_op: no value", rma.ErrArg, func() error {
			return w.FetchAndOp(buffer.Value[int64](nil), buffer.Value(&old), 1, rma.At(0), rma.Sum)
		}},
		{"fetch_and_op: no result", rma.ErrArg, func() error {
			return w.FetchAndOp(buffer.Value[int64](nil), buffer.Value[int64](nil), 1, rma.At(0), rma.NoOp)
		}},
		{"compare_and_swap: no value", rma.ErrArg, func() error {
			return w.CompareAndSwap(buffer.Value(&one), buffer.Value[int64](nil), buffer.Value(&old), 1, rma.At(0))
		}},
		{"put: rank too large", rma.ErrRank, func() error { return w.Put(buffer.Of(eight), 2, rma.At(0)) }},
		{"put: negative rank", rma.ErrRank, func() error { return w.Put(buffer.Of(eight), -1, rma.At(0)) }},
		{"get: no epoch on the target", rma.ErrRMASync, func() error { return w.Get(buffer.Of(eight), 0, rma.At(0)) }},
		{"put: no epoch on the target", rma.ErrRMASync, func() error { return w.Put(buffer.Of(eight), 0, rma.At(0)) }},
	} {
		err := c.call()
		var e *rma.Error
		if !errors.Is(err, c.class) || !errors.As(err, &e) || e.Op == "" {
			t.Errorf("%s: got %v, want class %q", c.name, err, error(c.class))
		}
		if err := w.Flush(j.ctx, 1); err != nil {
			t.Errorf("%s: the flush after it: %v", c.name, err)
		}
	}
	after := make([]byte, size)
	j.must(w.FetchAndOp(buffer.Value[int64](nil), buffer.Value(&old), 1, rma.At(0), rma.NoOp)) // which ignores the origin
	j.must(w.Get(buffer.Bytes(after), 1, rma.At(0)), w.Unlock(j.ctx, 1))
	if !bytes.Equal(before, after) {
		t.Errorf("something was written: %x", after)
	}
}

// TestRefusedByTarget issues what only the target can see to be wrong: an
// accumulate on memory of the user that is not aligned.
func TestRefusedByTarget(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := make([]*rma.Win, 2)
	mem := make([]byte, 32)
	j.each(func(n *rma.Node) (err error) {
		wins[n.Rank()], err = rma.Create(j.ctx, n.World(), mem[1:], 1, nil)
		return err
	})
	one, old, after := int64(1), int64(0), make([]byte, 31)
	for target := range 2 {
		w := wins[0]
		j.must(w.Lock(j.ctx, rma.LockExclusive, target, 0))
		j.must(w.Accumulate(buffer.Value(&one), target, rma.At(0), rma.Sum))
		if err := w.Flush(j.ctx, target); !errors.Is(err, rma.ErrDisp) {
			t.Errorf("target %d: accumulate and flush: got %v, want class displacement", target, err)
		}
		j.must(w.Flush(j.ctx, target)) // an error is told once
		j.must(w.FetchAndOp(buffer.Value(&one), buffer.Value(&old), target, rma.At(0), rma.Sum))
		if err := w.Unlock(j.ctx, target); !errors.Is(err, rma.ErrDisp) {
			t.Errorf("target %d: fetch_and_op and unlock: got %v, want class displacement", target, err)
		}
		j.must(w.Lock(j.ctx, rma.LockShared, target, 0), w.Get(buffer.Bytes(after), target, rma.At(0)), w.Unlock(j.ctx, target))
		if !bytes.Equal(after, make([]byte, 31)) {
			t.Errorf("target %d: something was written: %x", target, after)
		}
	}
	j.each(func(n *rma.Node) error { return wins[n.Rank()].Free(j.ctx) })
}

// TestRefusedSynchronisation makes every mistake of a synchronisation call.
func TestRefusedSynchronisation(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	ctx := j.ctx
	wins := j.windows(8, 1)
	w := wins[0]
	noLocks := j.windowsOf(func(int) (int, int) { return 8, 1 }, rma.Info{"no_locks": "true"})[0]
	nothing := func() error { return nil }
	for _, c := range []struct {
		name         string
		class        rma.Class
		before, call func() error
		after        func() error
	}{
		{"lock: no lock type", rma.ErrLocktype, nothing, func() error { return w.Lock(ctx, 0, 1, 0) }, nothing},
		{"lock: a noput assertion", rma.ErrAssert, nothing, func() error { return w.Lock(ctx, rma.LockShared, 1, rma.ModeNoPut) }, nothing},
		{"lock: no assertion", rma.ErrAssert, nothing, func() error { return w.Lock(ctx, rma.LockShared, 1, 3) }, nothing},
		{"lock: rank too large", rma.ErrRank, nothing, func() error { return w.Lock(ctx, rma.LockShared, 2, 0) }, nothing},
		{"lock: negative rank", rma.ErrRank, nothing, func() error { return w.Lock(ctx, rma.LockShared, -1, 0) }, nothing},
		{"lock_all: a nostore assertion", rma.ErrAssert, nothing, func() error { return w.LockAll(ctx, rma.ModeNoStore) }, nothing},
		{
			"lock: twice", rma.ErrRMASync,
			func() error { return w.Lock(ctx, rma.LockShared, 1, 0) },
			func() error { return w.Lock(ctx, rma.LockShared, 1, 0) },
			func() error { return w.Unlock(ctx, 1) },
		},
		{
			"lock: under lock_all", rma.ErrRMASync,
			func() error { return w.LockAll(ctx, 0) },
			func() error { return w.Lock(ctx, rma.LockShared, 1, 0) },
			func() error { return w.UnlockAll(ctx) },
		},
		{
			"lock_all: under lock", rma.ErrRMASync,
			func() error { return w.Lock(ctx, rma.LockExclusive, 1, 0) },
			func() error { return w.LockAll(ctx, 0) },
			func() error { return w.Unlock(ctx, 1) },
		},
		{
			"unlock: under lock_all", rma.ErrRMASync,
			func() error { return w.LockAll(ctx, 0) },
			func() error { return w.Unlock(ctx, 1) },
			func() error { return w.UnlockAll(ctx) },
		},
		{
			"unlock_all: under lock", rma.ErrRMASync,
			func() error { return w.Lock(ctx, rma.LockExclusive, 1, 0) },
			func() error { return w.UnlockAll(ctx) },
			func() error { return w.Unlock(ctx, 1) },
		},
		{
			"flush: a target that is not locked", rma.ErrRMASync,
			func() error { return w.Lock(ctx, rma.LockExclusive, 1, 0) },
			func() error { return w.Flush(ctx, 0) },
			func() error { return w.Unlock(ctx, 1) },
		},
		{
			"free: under lock", rma.ErrRMASync,
			func() error { return w.Lock(ctx, rma.LockShared, 0, 0) },
			func() error { return w.Free(ctx) },
			func() error { return w.Unlock(ctx, 0) },
		},
		{
			"free: under lock_all", rma.ErrRMASync,
			func() error { return w.LockAll(ctx, rma.ModeNoCheck) },
			func() error { return w.Free(ctx) },
			func() error { return w.UnlockAll(ctx) },
		},
		{"unlock: without lock", rma.ErrRMASync, nothing, func() error { return w.Unlock(ctx, 1) }, nothing},
		{"unlock: rank too large", rma.ErrRank, nothing, func() error { return w.Unlock(ctx, 2) }, nothing},
		{"unlock_all: without lock_all", rma.ErrRMASync, nothing, func() error { return w.UnlockAll(ctx) }, nothing},
		{"flush: outside an epoch", rma.ErrRMASync, nothing, func() error { return w.Flush(ctx, 1) }, nothing},
		{"flush: rank too large", rma.ErrRank, nothing, func() error { return w.Flush(ctx, 2) }, nothing},
		{"flush_local: outside an epoch", rma.ErrRMASync, nothing, func() error { return w.FlushLocal(ctx, 1) }, nothing},
		{"flush_all: outside an epoch", rma.ErrRMASync, nothing, func() error { return w.FlushAll(ctx) }, nothing},
		{"flush_local_all: outside an epoch", rma.ErrRMASync, nothing, func() error { return w.FlushLocalAll(ctx) }, nothing},
		{"flush_ranks: outside an epoch", rma.ErrRMASync, nothing, func() error { return w.FlushRanks(ctx, 1) }, nothing},
		{"flush_ranks: of nobody, outside an epoch", rma.ErrRMASync, nothing, func() error { return w.FlushRanks(ctx) }, nothing},
		{"flush_ranks: rank too large", rma.ErrRank, lockShared(w), func() error { return w.FlushRanks(ctx, 1, 2) }, unlock(w)},
		{"flush_ranks: rank too small", rma.ErrRank, lockShared(w), func() error { return w.FlushLocalRanks(ctx, -7, 1) }, unlock(w)},
		{"flush_ranks: one outside an epoch", rma.ErrRMASync, lockShared(w), func() error { return w.FlushRanks(ctx, 1, 0) }, unlock(w)},
		{"lock: no_locks", rma.ErrRMASync, nothing, func() error { return noLocks.Lock(ctx, rma.LockShared, 1, 0) }, nothing},
		{"lock_all: no_locks", rma.ErrRMASync, nothing, func() error { return noLocks.LockAll(ctx, 0) }, nothing},
	} {
		if err := c.before(); err != nil {
			t.Fatalf("%s: before: %v", c.name, err)
		}
		if err := c.call(); !errors.Is(err, c.class) {
			t.Errorf("%s: got %v, want class %q", c.name, err, error(c.class))
		}
		if err := c.after(); err != nil {
			t.Fatalf("%s: after: %v", c.name, err)
		}
	}
	j.each(func(n *rma.Node) error { return wins[n.Rank()].Free(ctx) })
}

// calls is every call on a window.
func calls(ctx context.Context, w *rma.Win, target int) map[string]func() error {
	one, old := int64(1), new(int64)
	return map[string]func() error{
		"put":        func() error { return w.Put(buffer.Value(&one), target, rma.At(0)) },
		"get":        func() error { return w.Get(buffer.Value(old), target, rma.At(0)) },
		"accumulate": func() error { return w.Accumulate(buffer.Value(&one), target, rma.At(0), rma.Sum) },
		"get_accumulate": func() error {
			return w.GetAccumulate(buffer.Value(&one), buffer.Value(old), target, rma.At(0), rma.Sum)
		},
		"fetch_and_op": func() error { return w.FetchAndOp(buffer.Value(&one), buffer.Value(old), target, rma.At(0), rma.Sum) },
		"swap": func() error {
			return w.CompareAndSwap(buffer.Value(&one), buffer.Value(&one), buffer.Value(old), target, rma.At(0))
		},
		"flush":           func() error { return w.Flush(ctx, target) },
		"flush_all":       func() error { return w.FlushAll(ctx) },
		"flush_local":     func() error { return w.FlushLocal(ctx, target) },
		"flush_local_all": func() error { return w.FlushLocalAll(ctx) },
		"flush_ranks":     func() error { return w.FlushRanks(ctx, target) },
		"sync":            func() error { return w.Sync() },
		"lock":            func() error { return w.Lock(ctx, rma.LockShared, target, 0) },
		"unlock":          func() error { return w.Unlock(ctx, target) },
		"lock_all":        func() error { return w.LockAll(ctx, 0) },
		"unlock_all":      func() error { return w.UnlockAll(ctx) },
		"free":            func() error { return w.Free(ctx) },
	}
}

func TestUseAfterFree(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows(8, 8)
	j.each(func(n *rma.Node) error { return wins[n.Rank()].Free(j.ctx) })
	for target := range 2 {
		for name, call := range calls(j.ctx, wins[0], target) {
			if err := call(); !errors.Is(err, rma.ErrWin) {
				t.Errorf("%s: got %v, want class window", name, err)
			}
		}
	}
	if m := wins[0].Memory(); m != nil {
		t.Errorf("the memory is still there: %d bytes", len(m))
	}
}

// TestUseAfterClose expects every call on a closed node to fail, whether its
// target is this rank or another, and to touch nothing.
func TestUseAfterClose(t *testing.T) {
	for _, open := range []bool{false, true} {
		j := newJob(t, 2, rma.Limits{})
		w := j.windows(8, 8)[0]
		if open {
			j.must(w.LockAll(j.ctx, 0), w.Put(buffer.Bytes(make([]byte, 8)), 1, rma.At(0)), w.FlushAll(j.ctx))
		}
		j.must(j.nodes[0].Close(), j.nodes[0].Close())
		for target := range 2 {
			for name, call := range calls(j.ctx, w, target) {
				if err := call(); !errors.Is(err, rma.ErrClosed) {
					t.Errorf("epoch %v, target %d, %s: got %v, want class closed", open, target, name, err)
				}
			}
		}
		if err := j.nodes[0].World().Barrier(j.ctx); !errors.Is(err, rma.ErrClosed) {
			t.Errorf("barrier: got %v, want class closed", err)
		}
		if _, err := rma.Allocate(j.ctx, j.nodes[0].World(), 8, 8, nil); !errors.Is(err, rma.ErrClosed) {
			t.Errorf("allocate: got %v, want class closed", err)
		}
	}
}
