package rma_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
)

// TestDupCountersAreItsOwn has ranks notify one by a duplicate, and by the window.
func TestDupCountersAreItsOwn(t *testing.T) {
	test := func(t *testing.T, j *job) {
		wins := j.windowsOf(func(int) (int, int) { return 64, 8 }, rma.Counters(2))
		dups := dupAll(j, wins)
		more := dupAll(j, wins, rma.Counters(3))
		for i, all := range [][]*rma.Win{dups, wins, more} {
			j.each(func(n *rma.Node) error {
				w, v := all[n.Rank()], int64(i)
				err := first(w.LockAll(j.ctx, 0), w.FlushAll(j.ctx))
				for to := range n.Size() {
					for range 5 {
						err = first(err, w.Put(buffer.Value(&v), to, rma.At(n.Rank()).Notify(1)), w.Flush(j.ctx, to))
					}
				}
				if err := first(err, w.UnlockAll(j.ctx)); err != nil {
					return err
				}
				got, err := w.WaitNotified(j.ctx, 1, uint64(5*n.Size()))
				if err == nil && got != uint64(5*n.Size()) {
					err = fmt.Errorf("notified %d times", got)
				}
				return errors.Join(err, n.World().Barrier(j.ctx))
			})
			for r := range all {
				if got, err := more[r].Notified(1); err != nil || i < 2 && got != 0 {
					t.Errorf("rank %d: another window was notified %d times: %v", r, got, err)
				}
			}
		}
		for _, all := range [][]*rma.Win{wins, more, dups} {
			freeAll(j, all)
		}
	}
	dupGrounds(t, test)
	t.Run("in reach", func(t *testing.T) { test(t, newLabJobAt(t, oneAway, false, rma.Limits{})) })
}

// TestDupFails has a rank die, or give up, or fail to map the locks. Then no rank has a duplicate,
// and all can free the window.
func TestDupFails(t *testing.T) {
	hosts := []string{"a", "a", "b"}
	noLocks := func(t *testing.T, j *job, wins []*rma.Win) {
		for range 3 {
			restore := rma.FailMaps(1)
			errs := j.outcomes(func(n *rma.Node) error { return only(wins[n.Rank()].Dup(j.ctx)) })
			restore()
			for r, err := range errs {
				if !errors.Is(err, rma.ErrNoMem) {
					t.Errorf("rank %d got %v", r, err)
				}
			}
		}
	}
	t.Run("no locks", func(t *testing.T) {
		j := newJobAt(t, hosts, rma.Limits{})
		wins := j.windows(64, 8)
		files := testenv.OpenFiles(t)
		noLocks(t, j, wins)
		if n := testenv.OpenFiles(t); n != files {
			t.Errorf("%d files are open, %d before", n, files)
		}
		freeAll(j, dupAll(j, wins))
		freeAll(j, wins)
	})
	t.Run("no locks, in reach", func(t *testing.T) {
		j := newLabJobAt(t, oneAway, false, rma.Limits{})
		before := kernelMemory(t)
		wins := j.windows(64, 8)
		awaitReach(j, wins[2])
		noLocks(t, j, wins)
		freeAll(j, dupAll(j, wins))
		freeAll(j, wins)
		awaitNoMoreKernelMemory(t, before)
	})
	t.Run("no memory in common", func(t *testing.T) {
		j := newJobAt(t, hosts, rma.Limits{})
		restore := rma.FailMaps(1)
		wins := j.windows(64, 8)
		restore()
		dups, one := dupAll(j, wins), int64(1)
		j.each(func(n *rma.Node) error {
			errs := []error(nil)
			for _, w := range []*rma.Win{wins[n.Rank()], dups[n.Rank()]} {
				for to := range n.Size() {
					errs = append(errs, w.Lock(j.ctx, rma.LockExclusive, to, 0), w.Accumulate(buffer.Value(&one), to, rma.At(0), rma.Sum), w.Unlock(j.ctx, to))
				}
			}
			return errors.Join(append(errs, n.World().Barrier(j.ctx))...)
		})
		freeAll(j, wins)
		for r, w := range dups {
			if got := rma.Slice[int64](w.Memory())[0]; got != 6 {
				t.Errorf("rank %d has %d", r, got)
			}
		}
		freeAll(j, dups)
	})
	t.Run("a rank dies", func(t *testing.T) {
		j := newJobAt(t, hosts, soon)
		wins := j.windows(64, 8)
		for r, err := range j.outcomes(func(n *rma.Node) error {
			if n.Rank() == 2 {
				n.Silence()
				return rma.ErrProcFailed
			}
			return only(wins[n.Rank()].Dup(j.ctx))
		}) {
			if !errors.Is(err, rma.ErrProcFailed) {
				t.Errorf("rank %d got %v", r, err)
			}
		}
		j.freeHere(wins[:2])
	})
	t.Run("a rank gives up", func(t *testing.T) {
		j := newJobAt(t, hosts, rma.Limits{})
		wins := j.windows(64, 8)
		for r, err := range j.outcomes(func(n *rma.Node) error {
			ctx := j.ctx
			if n.Rank() == 2 {
				return nil // never calls
			}
			if n.Rank() == 1 {
				given, giveUp := context.WithTimeout(ctx, 10*time.Millisecond)
				defer giveUp()
				ctx = given
			}
			return only(wins[n.Rank()].Dup(ctx))
		}) {
			if (err == nil) != (r == 2) {
				t.Errorf("rank %d got %v", r, err)
			}
		}
		j.freeHere(wins)
	})
}

// freeHere frees windows whose ranks may be gone, and holds Free to giving the memory back.
func (j *job) freeHere(wins []*rma.Win) {
	j.t.Helper()
	for _, w := range wins {
		given, giveUp := context.WithCancel(j.ctx)
		giveUp()
		_ = w.Free(given)
		if w.Memory() != nil {
			j.t.Error("the window has memory")
		}
	}
}
