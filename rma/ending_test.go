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

// TestContextEnds ends the context of every call that blocks, by its deadline and by
// cancelling it. The window works afterwards.
func TestContextEnds(t *testing.T) {
	once(t)
	j := newJob(t, 2, rma.Limits{})
	endings := map[error]func() (context.Context, context.CancelFunc){
		context.DeadlineExceeded: func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(j.ctx, 5*time.Millisecond)
		},
		context.Canceled: func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(j.ctx)
			time.AfterFunc(5*time.Millisecond, cancel)
			return ctx, cancel
		},
	}
	one := int64(1)
	nothing := func(mine, other *rma.Win) error { return nil }
	held := func(mine, other *rma.Win) error { // a lock that the other rank holds is asked for
		return errors.Join(other.Lock(j.ctx, rma.LockExclusive, 1, 0), other.Flush(j.ctx, 1),
			mine.Lock(j.ctx, rma.LockShared, 1, 0), mine.Accumulate(buffer.Value(&one), 1, rma.At(0), rma.Sum))
	}
	heldForAll := func(mine, other *rma.Win) error {
		return errors.Join(other.Lock(j.ctx, rma.LockExclusive, 1, 0), other.Flush(j.ctx, 1),
			mine.LockAll(j.ctx, 0), mine.Accumulate(buffer.Value(&one), 1, rma.At(0), rma.Sum))
	}
	release := func(mine, other *rma.Win) error { return errors.Join(other.Unlock(j.ctx, 1), mine.Unlock(j.ctx, 1)) }
	releaseAll := func(mine, other *rma.Win) error { return errors.Join(other.Unlock(j.ctx, 1), mine.UnlockAll(j.ctx)) }
	for _, c := range []struct {
		op     string
		rank   int
		before func(mine, other *rma.Win) error
		call   func(ctx context.Context, w *rma.Win) error
		after  func(mine, other *rma.Win) error
	}{
		{"lock", 0, func(mine, other *rma.Win) error {
			return errors.Join(other.Lock(j.ctx, rma.LockExclusive, 0, 0), other.Flush(j.ctx, 0))
		}, func(ctx context.Context, w *rma.Win) error { return w.Lock(ctx, rma.LockShared, 0, 0) },
			func(mine, other *rma.Win) error { return other.Unlock(j.ctx, 0) }},
		{"flush", 1, held, func(ctx context.Context, w *rma.Win) error { return w.Flush(ctx, 1) }, release},
		{"flush_local", 1, held, func(ctx context.Context, w *rma.Win) error { return w.FlushLocal(ctx, 1) }, release},
		{"flush_all", 1, held, func(ctx context.Context, w *rma.Win) error { return w.FlushAll(ctx) }, release},
		{"flush_local_all", 1, held, func(ctx context.Context, w *rma.Win) error { return w.FlushLocalAll(ctx) }, release},
		{"flush_ranks", 1, held, func(ctx context.Context, w *rma.Win) error { return w.FlushRanks(ctx, 1, 1) }, release},
		{"flush_local_ranks", 1, held, func(ctx context.Context, w *rma.Win) error { return w.FlushLocalRanks(ctx, 1) }, release},
		{"unlock", 1, held, func(ctx context.Context, w *rma.Win) error { return w.Unlock(ctx, 1) }, release},
		{"unlock_all", 1, heldForAll, func(ctx context.Context, w *rma.Win) error { return w.UnlockAll(ctx) }, releaseAll},
		{"wait", rma.NoRank, held, func(ctx context.Context, w *rma.Win) error {
			got := int64(0)
			r, err := w.Rget(buffer.Value(&got), 1, rma.At(0))
			if err != nil {
				return err
			}
			return r.Wait(ctx)
		}, release},
		{"complete", 1, func(mine, other *rma.Win) error {
			got := new(int64)
			return errors.Join(mine.Start(j.ctx, []int{1}, 0), mine.Get(buffer.Value(got), 1, rma.At(0)))
		}, func(ctx context.Context, w *rma.Win) error { return w.Complete(ctx) },
			func(mine, other *rma.Win) error {
				return errors.Join(other.Post(j.ctx, []int{0}, 0), other.Wait(j.ctx))
			}},
		{"wait", 1, func(mine, other *rma.Win) error { return mine.Post(j.ctx, []int{1}, 0) },
			func(ctx context.Context, w *rma.Win) error { return w.Wait(ctx) },
			func(mine, other *rma.Win) error {
				return errors.Join(other.Start(j.ctx, []int{0}, 0), other.Complete(j.ctx), mine.Wait(j.ctx))
			}},
		// These break the window's collectives, and are the last of a window.
		{"fence", rma.NoRank, nothing, func(ctx context.Context, w *rma.Win) error { return w.Fence(ctx, 0) }, nil},
		{"window set_info", rma.NoRank, nothing, func(ctx context.Context, w *rma.Win) error { return w.SetInfo(ctx, nil) }, nil},
		{"window free", rma.NoRank, nothing, func(ctx context.Context, w *rma.Win) error { return w.Free(ctx) }, nil},
	} {
		for cause, begin := range endings {
			wins := j.windows(8, 8)
			j.must(c.before(wins[0], wins[1]))
			ctx, cancel := begin()
			err := c.call(ctx, wins[0])
			cancel()
			var e *rma.Error
			if !errors.As(err, &e) || e.Op != c.op || e.Rank != c.rank || e.Class != rma.ErrTimeout || !errors.Is(err, cause) {
				t.Errorf("%s: got %v, want %v at rank %d", c.op, err, cause, c.rank)
			}
			if c.after != nil {
				j.must(c.after(wins[0], wins[1]))
				freeAll(j, wins)
			}
		}
	}
	for cause, begin := range endings { // breaks the communicator
		for name, create := range map[string]func(ctx context.Context, c *comm.Comm) (*rma.Win, error){
			"allocate": func(ctx context.Context, c *comm.Comm) (*rma.Win, error) { return rma.Allocate(ctx, c, 8, 8, nil) },
			"create": func(ctx context.Context, c *comm.Comm) (*rma.Win, error) {
				return rma.Create(ctx, c, make([]byte, 8), 8, nil)
			},
			"shared": func(ctx context.Context, c *comm.Comm) (*rma.Win, error) {
				return rma.AllocateShared(ctx, c, 8, 8, nil)
			},
			"dynamic": func(ctx context.Context, c *comm.Comm) (*rma.Win, error) { return rma.CreateDynamic(ctx, c, nil) },
		} {
			j.each(func(n *rma.Node) error {
				c, err := n.World().Dup(j.ctx)
				if err != nil || n.Rank() == 1 {
					return err
				}
				ctx, cancel := begin()
				defer cancel()
				_, err = create(ctx, c)
				var e *rma.Error
				if !errors.As(err, &e) || e.Op != "window create" || e.Rank != rma.NoRank || e.Class != rma.ErrTimeout || !errors.Is(err, cause) {
					return fmt.Errorf("%s: got %w, want %w", name, err, cause)
				}
				return nil
			})
		}
	}
}

// TestErrorRanks has targets refuse operations, and a target die, on windows whose
// ranks are not those of the job: errors name the ranks of the window.
func TestErrorRanks(t *testing.T) {
	t.Parallel()
	const size = 4
	j := newJob(t, size, soon)
	wins := make([]*rma.Win, size)
	j.each(func(n *rma.Node) error {
		c, err := n.World().Split(j.ctx, 0, -n.Rank())
		if err != nil {
			return err
		}
		mem := rma.BytesOf(make([]int64, 5))
		w, err := rma.Create(j.ctx, c, mem[1:33], 1, nil) // no element is aligned
		wins[c.Rank()] = w
		return err
	})
	at := func(what string, err error, op string, rank int, class rma.Class) {
		t.Helper()
		var e *rma.Error
		if !errors.As(err, &e) || e.Op != op || e.Rank != rank || e.Class != class {
			t.Errorf("%s: got %v, want %v of %s at rank %d", what, err, class, op, rank)
		}
	}
	one := int64(1)
	w := wins[0]
	for target := range size {
		refused := func() error { return w.Accumulate(buffer.Value(&one), target, rma.At(0), rma.Sum) }
		j.must(w.Lock(j.ctx, rma.LockShared, target, 0), refused())
		at("flush", w.Flush(j.ctx, target), "accumulate", target, rma.ErrDisp)
		j.must(refused())
		at("flush_all", w.FlushAll(j.ctx), "accumulate", target, rma.ErrDisp)
		former := int64(0)
		r, err := w.RfetchAndOp(buffer.Value(&one), buffer.Value(&former), target, rma.At(0), rma.Sum)
		j.must(err)
		at("a request", r.Wait(j.ctx), "rfetch_and_op", target, rma.ErrDisp)
		j.must(refused())
		at("unlock", w.Unlock(j.ctx, target), "accumulate", target, rma.ErrDisp)
		j.must(w.LockAll(j.ctx, 0), refused())
		at("unlock_all", w.UnlockAll(j.ctx), "accumulate", target, rma.ErrDisp)
		at("get", w.Get(buffer.Value(&one), target, rma.At(0)), "get", target, rma.ErrRMASync)
	}
	const dead = 3
	j.nodes[size-1-dead].Silence()
	j.must(w.Lock(j.ctx, rma.LockShared, dead, rma.ModeNoCheck), w.Put(buffer.Value(&one), dead, rma.At(0)))
	at("flush of the dead", w.Flush(j.ctx, dead), "flush", dead, rma.ErrProcFailed)
	at("put to the dead", w.Put(buffer.Value(&one), dead, rma.At(0)), "put", dead, rma.ErrProcFailed)
	at("post to the dead", w.Post(j.ctx, []int{dead}, 0), "post", dead, rma.ErrProcFailed)
	at("unlock of the dead", w.Unlock(j.ctx, dead), "unlock", dead, rma.ErrProcFailed)
	at("fence with the dead", w.Fence(j.ctx, 0), "fence", dead, rma.ErrProcFailed)
}

// TestWindowOutlivesCommunicator frees a communicator before the window on it.
func TestWindowOutlivesCommunicator(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	j.each(func(n *rma.Node) error {
		c, err := n.World().Dup(j.ctx)
		if err != nil {
			return err
		}
		w, err := rma.Allocate(j.ctx, c, 8, 8, nil)
		if err != nil {
			return err
		}
		if err := c.Free(); err != nil {
			return err
		}
		if _, err := rma.Allocate(j.ctx, c, 8, 8, nil); !errors.Is(err, rma.ErrComm) {
			return fmt.Errorf("another window: got %w, want class communicator", err)
		}
		v := int64(n.Rank() + 1)
		err = errors.Join(w.Fence(j.ctx, 0), w.Put(buffer.Value(&v), 1-n.Rank(), rma.At(0)), w.Fence(j.ctx, rma.ModeNoSucceed),
			w.SetInfo(j.ctx, rma.Info{"accumulate_ordering": "none"}))
		if got := rma.Slice[int64](w.Memory())[0]; got != int64(2-n.Rank()) {
			err = errors.Join(err, fmt.Errorf("got %d", got))
		}
		return errors.Join(err, w.Free(j.ctx))
	})
}

// TestLocalCallsDoNotWaitForConnections begins epochs with ranks that this one has not met,
// within a context that has ended: none of these calls waits, and what is issued arrives.
func TestLocalCallsDoNotWaitForConnections(t *testing.T) {
	once(t)                                                   // a lock is waited for where memory is shared
	j := newJob(t, 8, rma.Limits{TxFrames: 64, RxFrames: 64}) // whose collectives bring together ranks 1, 2 and 4 apart
	wins := j.windows(16, 8)
	none, cancel := context.WithCancel(j.ctx)
	cancel()
	w, one := wins[0], int64(1)
	put := func(target int) error { return w.Put(buffer.Value(&one), target, rma.At(0).Within(none)) }
	j.must(w.Lock(none, rma.LockShared, 3, 0), put(3), w.Unlock(j.ctx, 3))
	j.must(w.LockAll(none, 0), put(5), put(6), w.UnlockAll(j.ctx))
	j.must(w.Start(none, []int{1, 7}, 0), put(1), put(7))
	for _, r := range []int{1, 7} {
		j.must(wins[r].Post(none, []int{0}, 0))
	}
	j.must(w.Complete(j.ctx), wins[1].Wait(j.ctx), wins[7].Wait(j.ctx))
	for _, r := range []int{1, 3, 5, 6, 7} {
		if got := rma.Slice[int64](wins[r].Memory())[0]; got != 1 {
			t.Errorf("rank %d has %d", r, got)
		}
	}
	freeAll(j, wins)
}
