package rma_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/lab/testjob"
	"github.com/xdprma/xdprma/rma"
)

// TestConflicts has one rank ask for checking mode. A program in order is not
// reported; one that is not works as before, and is.
func TestConflicts(t *testing.T) {
	j := newJob(t, 3, rma.Limits{})
	wins := make([]*rma.Win, 3)
	j.each(func(n *rma.Node) (err error) {
		info := rma.Info{}
		if n.Rank() == 2 {
			info["xdprma_check_conflicts"] = "true"
		}
		wins[n.Rank()], err = rma.Allocate(j.ctx, n.World(), 1<<16, 1, info)
		return err
	})
	data, back := make([]byte, 20000), make([]byte, 20000)
	each := func(f func(w *rma.Win, rank int) error) {
		t.Helper()
		j.each(func(n *rma.Node) error { return f(wins[n.Rank()], n.Rank()) })
	}
	// All ranks put the same bytes, one after the other.
	each(func(w *rma.Win, _ int) error { return w.LockAll(j.ctx, 0) })
	for _, w := range wins {
		for target := range wins {
			j.must(w.Put(buffer.Bytes(data), target, rma.At(0)), w.Flush(j.ctx, target),
				w.Get(buffer.Bytes(back), target, rma.At(0)), w.FlushLocal(j.ctx, target))
		}
	}
	each(func(w *rma.Win, rank int) error {
		one, old := int64(1), int64(0)
		return errors.Join(w.Accumulate(buffer.Value(&one), 1, rma.At(40000), rma.Sum),
			w.FetchAndOp(buffer.Value(&one), buffer.Value(&old), 1, rma.At(40000), rma.Sum),
			w.UnlockAll(j.ctx), w.Lock(j.ctx, rma.LockExclusive, 0, 0), w.Put(buffer.Bytes(data), 0, rma.At(0)), w.Unlock(j.ctx, 0))
	})
	for rank, w := range wins {
		if list, total := w.Conflicts(); total != 0 {
			t.Errorf("rank %d: a program in order was reported: %v", rank, list[0].Err())
		}
		if w.Info()["xdprma_check_conflicts"] != "true" {
			t.Errorf("rank %d does not check", rank)
		}
	}
	// Ranks 0 and 2 put to the same bytes of rank 1 under shared locks.
	j.must(wins[1].SetName("halo"))
	j.must(wins[0].Lock(j.ctx, rma.LockShared, 1, 0), wins[2].Lock(j.ctx, rma.LockShared, 1, 0),
		wins[0].Put(buffer.Bytes(data), 1, rma.At(0)), wins[0].FlushLocal(j.ctx, 1),
		wins[2].Put(buffer.Bytes(data), 1, rma.At(19000)), wins[2].Flush(j.ctx, 1),
		wins[0].Unlock(j.ctx, 1), wins[2].Unlock(j.ctx, 1))
	list, total := wins[1].Conflicts()
	if len(list) != 1 || total != 1 || list[0].Target != 1 || list[0].Start != 19000 || list[0].End != 20000 {
		t.Fatalf("%d conflicts: %v", total, list)
	}
	if k := list[0]; k.First.Origin+k.Second.Origin != 2 || k.Name != "halo" || !errors.Is(k.Err(), rma.ErrRMAConflict) {
		t.Errorf("got %v", k.Err())
	}
	if protocol := j.nodes[1].Stats(); protocol.Conflicts != 1 {
		t.Errorf("%d conflicts counted", protocol.Conflicts)
	}
	each(func(w *rma.Win, _ int) error { return w.Free(j.ctx) })
	if list, total := wins[1].Conflicts(); len(list) != 1 || total != 1 {
		t.Error("the conflicts of a freed window are gone")
	}
}

// TestEpochConflicts has ranks put the same bytes of rank 0 in the epochs of active
// target synchronisation. However the puts follow each other, one epoch orders nothing,
// and the next one everything.
func TestEpochConflicts(t *testing.T) {
	j := newJob(t, 3, rma.Limits{})
	wins := make([]*rma.Win, 3)
	j.each(func(n *rma.Node) (err error) {
		wins[n.Rank()], err = rma.Allocate(j.ctx, n.World(), 64, 1, rma.Info{"xdprma_check_conflicts": "true"})
		return err
	})
	found := 0
	expect := func(what string, more int) {
		t.Helper()
		list, total := wins[0].Conflicts()
		if found += more; total != found {
			t.Errorf("%s: %d conflicts, want %d: %v", what, total, found, list)
		}
	}
	data := make([]byte, 8)
	fence := func(what string, at func(rank int) int64, more int) {
		t.Helper()
		j.each(func(n *rma.Node) error {
			w := wins[n.Rank()]
			return errors.Join(w.Fence(j.ctx, 0), w.Put(buffer.Bytes(data), 0, rma.At(at(n.Rank()))), w.Fence(j.ctx, 0))
		})
		expect(what, more)
	}
	fence("fences, puts to the same bytes", func(int) int64 { return 0 }, 3) // of each two of the ranks
	fence("fences, puts to bytes of each rank", func(rank int) int64 { return int64(8 * rank) }, 0)
	fence("fences, puts to bytes that another rank has put", func(rank int) int64 { return int64(8 * ((rank + 1) % 3)) }, 0)
	post := func(what string, at func(rank int) int64, more int) {
		t.Helper()
		j.each(func(n *rma.Node) error {
			w := wins[n.Rank()]
			if n.Rank() == 0 {
				return errors.Join(w.Post(j.ctx, []int{1, 2}, 0), w.Wait(j.ctx))
			}
			return errors.Join(w.Start(j.ctx, []int{0}, 0), w.Put(buffer.Bytes(data), 0, rma.At(at(n.Rank()))), w.Complete(j.ctx))
		})
		expect(what, more)
	}
	post("post, puts to the same bytes", func(int) int64 { return 32 }, 1)
	post("post, puts to bytes of each rank", func(rank int) int64 { return int64(8 * rank) }, 0)
	post("post, puts to bytes that another rank has put", func(rank int) int64 { return int64(8 * (3 - rank)) }, 0)
	j.each(func(n *rma.Node) error { return wins[n.Rank()].Free(j.ctx) })
}

// TestConflictsTold turns checking mode on for a whole job, and reads the log and
// what the program's function is told.
func TestConflictsTold(t *testing.T) {
	places, stop, err := testjob.Places(1)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit)
	defer cancel()
	t.Setenv("XDPRMA_CHECK", "true")
	if _, err := rma.Join(ctx, testjob.Config(&places[0])); !errors.Is(err, rma.ErrArg) {
		t.Errorf("a value that means nothing: %v", err)
	}
	t.Setenv("XDPRMA_CHECK", "1")
	var log bytes.Buffer
	told := make(chan rma.Conflict, 10)
	c := testjob.Config(&places[0])
	c.Logger, c.OnConflict = slog.New(slog.NewTextHandler(&log, nil)), func(c rma.Conflict) { told <- c }
	n, err := rma.Join(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	w, err := rma.Allocate(ctx, n.World(), 64, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Lock(ctx, rma.LockShared, 0, 0), w.Put(buffer.Bytes(make([]byte, 8)), 0, rma.At(0)),
		w.Put(buffer.Bytes(make([]byte, 8)), 0, rma.At(6)), w.Unlock(ctx, 0)); err != nil {
		t.Error(err)
	}
	select {
	case c := <-told:
		if c.Start != 6 || c.End != 8 {
			t.Errorf("told of %v", c.Err())
		}
		if !strings.Contains(log.String(), "bytes 6 to 8: put by rank 0 and put by rank 0") {
			t.Errorf("the log says %q", log.String())
		}
	case <-ctx.Done():
		t.Error("nobody was told")
	}
	if err := errors.Join(w.Free(ctx), n.Close()); err != nil {
		t.Error(err)
	}
}
