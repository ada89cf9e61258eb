package rma_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/rma"
)

// soon is when a silent rank counts as dead in these tests. They run side by side, because
// the most of each is waiting for that.
var soon = rma.Limits{DeadAfter: 2 * time.Second}

// TestSilentTarget lets a rank vanish without a word. Operations that were or will be
// issued to it fail with the class for it. Operations to other ranks do not.
func TestSilentTarget(t *testing.T) {
	once(t)
	t.Parallel()
	j := newJob(t, 3, soon)
	w := j.windows(8, 8)[0]
	one, old := int64(1), int64(0)
	j.must(w.LockAll(j.ctx, 0), w.Put(buffer.Value(&one), 1, rma.At(0)), w.Put(buffer.Value(&one), 2, rma.At(0)), w.FlushAll(j.ctx))
	j.nodes[1].Silence()
	for name, call := range map[string]func() error{
		"put":          func() error { return w.Put(buffer.Value(&one), 1, rma.At(0)) },
		"fetch_and_op": func() error { return w.FetchAndOp(buffer.Value(&one), buffer.Value(&old), 1, rma.At(0), rma.Sum) },
		"get":          func() error { return w.Get(buffer.Value(&old), 1, rma.At(0)) },
	} {
		err := call()
		if err == nil {
			err = w.Flush(j.ctx, 1)
		}
		var e *rma.Error
		if !errors.Is(err, rma.ErrProcFailed) || !errors.As(err, &e) || e.Rank != 1 {
			t.Errorf("%s: got %v, want class process failed at rank 1", name, err)
		}
	}
	j.must(w.Put(buffer.Value(&one), 2, rma.At(0)), w.Flush(j.ctx, 2))
	if err := w.FlushAll(j.ctx); !errors.Is(err, rma.ErrProcFailed) {
		t.Errorf("flush_all: got %v, want class process failed", err)
	}
	if err := w.UnlockAll(j.ctx); !errors.Is(err, rma.ErrProcFailed) {
		t.Errorf("unlock_all: got %v, want class process failed", err)
	}
	// The living go on without it.
	j.must(w.LockAll(j.ctx, 0), w.Get(buffer.Value(&old), 2, rma.At(0)), w.FlushAll(j.ctx), w.UnlockAll(j.ctx))
	if old != 1 {
		t.Errorf("rank 2 holds %d", old)
	}
}

// TestSilentHolder lets a rank vanish that holds an exclusive lock: who waits for
// it gets it.
func TestSilentHolder(t *testing.T) {
	t.Parallel()
	j := newJob(t, 3, soon)
	wins := j.windows(8, 8)
	j.must(wins[1].Lock(j.ctx, rma.LockExclusive, 2, 0), wins[1].Flush(j.ctx, 2))
	j.nodes[1].Silence()
	j.must(wins[0].Lock(j.ctx, rma.LockExclusive, 2, 0), wins[0].Unlock(j.ctx, 2))
	j.must(wins[2].Lock(j.ctx, rma.LockExclusive, 2, 0), wins[2].Unlock(j.ctx, 2))
}

// TestSilentCollective lets a rank vanish before a window is made and before one
// is freed: all others learn of it.
func TestSilentCollective(t *testing.T) {
	t.Parallel()
	j := newJob(t, 4, soon)
	wins := j.windows(8, 8)
	j.nodes[3].Silence()
	living := func(f func(n *rma.Node) error) []error {
		return j.outcomes(func(n *rma.Node) error {
			if n.Rank() == 3 {
				return rma.ErrProcFailed
			}
			return f(n)
		})
	}
	for rank, err := range living(func(n *rma.Node) error { return wins[n.Rank()].Free(j.ctx) }) {
		if !errors.Is(err, rma.ErrProcFailed) {
			t.Errorf("free at rank %d: got %v, want class process failed", rank, err)
		}
	}
	for rank, err := range living(func(n *rma.Node) error {
		_, err := rma.Allocate(j.ctx, n.World(), 8, 8, nil)
		return err
	}) {
		if !errors.Is(err, rma.ErrProcFailed) {
			t.Errorf("allocate at rank %d: got %v, want class process failed", rank, err)
		}
	}
}

// TestFlushCancelled ends a flush that waits for a lock, whose epoch goes on.
func TestFlushCancelled(t *testing.T) {
	once(t)
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows(8, 8)
	one := int64(1)
	j.must(wins[1].Lock(j.ctx, rma.LockExclusive, 1, 0))
	w := wins[0]
	for name, flush := range map[string]func(ctx context.Context) error{
		"flush":           func(ctx context.Context) error { return w.Flush(ctx, 1) },
		"flush_all":       w.FlushAll,
		"flush_local":     func(ctx context.Context) error { return w.FlushLocal(ctx, 1) },
		"flush_local_all": w.FlushLocalAll,
		"flush_ranks":     func(ctx context.Context) error { return w.FlushRanks(ctx, 1) },
	} {
		j.must(w.Lock(j.ctx, rma.LockShared, 1, 0), w.Accumulate(buffer.Value(&one), 1, rma.At(0), rma.Sum))
		ctx, cancel := context.WithCancel(j.ctx)
		go cancel()
		if err := flush(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want cancelled", name, err)
		}
		j.must(wins[1].Unlock(j.ctx, 1), flush(j.ctx), w.Unlock(j.ctx, 1), wins[1].Lock(j.ctx, rma.LockExclusive, 1, 0))
	}
	j.must(wins[1].Unlock(j.ctx, 1))
	if got := rma.Slice[int64](wins[1].Memory())[0]; got != 5 {
		t.Errorf("the counter is %d, want 5", got)
	}
}

// TestCloseWakes closes a node while calls of it wait for a lock that another
// rank holds: a flush, and an unlock after a put that is too large to travel with
// the request.
func TestCloseWakes(t *testing.T) {
	once(t)
	const size = 4 << 20
	for name, call := range map[string]func(ctx context.Context, w *rma.Win) error{
		"flush": func(ctx context.Context, w *rma.Win) error { return w.Flush(ctx, 1) },
		"unlock": func(ctx context.Context, w *rma.Win) error {
			return errors.Join(w.Put(buffer.Bytes(make([]byte, size)), 1, rma.At(0)), w.Unlock(ctx, 1))
		},
	} {
		j := newJob(t, 2, rma.Limits{})
		wins := j.windows(size, 1)
		j.must(wins[1].Lock(j.ctx, rma.LockExclusive, 1, 0))
		j.must(wins[0].Lock(j.ctx, rma.LockShared, 1, 0))
		done := make(chan error)
		go func() { done <- call(j.ctx, wins[0]) }()
		j.must(j.nodes[0].Close())
		if err := <-done; !errors.Is(err, rma.ErrClosed) && !errors.Is(err, rma.ErrProcFailed) {
			t.Errorf("%s: got %v, want class closed", name, err)
		}
		j.must(wins[1].Unlock(j.ctx, 1))
	}
}

// TestCreateHalf has rank 2 vanish when rank 1 has its part of a new window, and rank 0 has
// not: no rank waits at the window for those that do not have it.
func TestCreateHalf(t *testing.T) {
	once(t)
	t.Parallel()
	for name, call := range map[string]func(ctx context.Context, w *rma.Win) error{
		"fence": func(ctx context.Context, w *rma.Win) error { return w.Fence(ctx, 0) },
		"free":  func(ctx context.Context, w *rma.Win) error { return w.Free(ctx) },
	} {
		j := newJob(t, 3, soon)
		near, hasIt := make(chan bool), errors.New("it has the window")
		errs := j.outcomes(func(n *rma.Node) error {
			var w *rma.Win
			var err error
			switch c := n.World(); n.Rank() {
			case 0:
				_, err = rma.CreateInSteps(j.ctx, c, func() { <-near; j.nodes[2].SilenceWaiting() })
			case 1:
				w, err = rma.Create(j.ctx, c, nil, 1, nil)
			default:
				_, err = rma.CreateInSteps(j.ctx, c, func() { close(near) })
				return err
			}
			if err != nil {
				return err
			}
			return errors.Join(hasIt, call(j.ctx, w))
		})
		if !errors.Is(errs[0], rma.ErrProcFailed) {
			t.Errorf("%s: rank 0: got %v, want class process failed", name, errs[0])
		}
		if !errors.Is(errs[1], hasIt) || !errors.Is(errs[1], rma.ErrProcFailed) {
			t.Errorf("rank 1: got %v, want a window whose %s fails with class process failed", errs[1], name)
		}
	}
}
