package rma_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/rma"
)

func TestKeyval(t *testing.T) {
	j := newJob(t, 1, rma.Limits{})
	w, other := j.windows(8, 8)[0], j.windows(8, 8)[0]
	var gone []int
	fail := errors.New("it will not go")
	number := rma.NewKeyval(func(of *rma.Win, n int) error {
		if n < 0 {
			return fail
		}
		if of != w {
			t.Error("the callback got another window")
		}
		gone = append(gone, n)
		return nil
	})
	another := rma.NewKeyval(func(_ *rma.Win, n int) error { gone = append(gone, n); return nil })
	nothing := rma.NewKeyval[error](nil)
	if _, ok := number.Get(w); ok {
		t.Error("a new window has a value")
	}
	j.must(number.Delete(w), number.Set(w, 1), number.Set(w, 2), number.Set(other, 3), another.Set(w, 4), nothing.Set(w, nil))
	if n, ok := number.Get(w); n != 2 || !ok {
		t.Errorf("got %d, %v", n, ok)
	}
	if n, _ := number.Get(other); n != 3 {
		t.Errorf("the other window has %d", n)
	}
	if err, ok := nothing.Get(w); err != nil || !ok {
		t.Errorf("got %v, %v", err, ok)
	}
	j.must(number.Set(w, -1))
	for what, err := range map[string]error{"set": number.Set(w, 5), "delete": number.Delete(w)} {
		if !errors.Is(err, rma.ErrOther) || !errors.Is(err, fail) {
			t.Errorf("%s: got %v, want the callback's error", what, err)
		}
	}
	if err := w.Free(j.ctx); !errors.Is(err, rma.ErrOther) || !errors.Is(err, fail) {
		t.Errorf("free: got %v, want the callback's error", err)
	}
	if want := []int{1, 2, 4}; !slices.Equal(gone, want) {
		t.Errorf("deleted %v, want %v", gone, want)
	}
	for what, err := range map[string]error{
		"free": w.Free(j.ctx), "set": number.Set(w, 1), "delete": number.Delete(w), "set_name": w.SetName("w"),
	} {
		if !errors.Is(err, rma.ErrWin) {
			t.Errorf("%s after free: got %v, want invalid window", what, err)
		}
	}
	w = other
	j.must(other.Free(j.ctx))
}

func TestNames(t *testing.T) {
	j := newJob(t, 1, rma.Limits{})
	w := j.windows(8, 8)[0]
	if w.Name() != "" {
		t.Errorf("a new window is called %q", w.Name())
	}
	j.must(w.SetName("halo"))
	if w.Name() != "halo" {
		t.Errorf("the window is called %q", w.Name())
	}
}

// TestSetInfo changes hints: those that may change do, those settled at creation
// do not, and one rank's mistake changes nothing anywhere.
func TestSetInfo(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := j.windowsOf(func(int) (int, int) { return 64, 1 }, rma.Info{"mpi_minimum_memory_alignment": "65536", "same_size": "true"})
	expect := func(when string, want rma.Info) {
		t.Helper()
		for _, w := range wins {
			for key, value := range want {
				if got := w.Info()[key]; got != value {
					t.Errorf("%s: %s is %q, want %q", when, key, got, value)
				}
			}
		}
	}
	defaults := rma.Info{"no_locks": "false", "accumulate_ordering": "rar,raw,war,waw", "accumulate_ops": "same_op_no_op",
		"mpi_accumulate_granularity": "0", "same_size": "true", "same_disp_unit": "false", "mpi_minimum_memory_alignment": "65536", "alloc_shared_noncontig": "false",
		"xdprma_ordered": "false", "xdprma_counters": "0", "xdprma_check_conflicts": "false", "xdprma_in_clear": "false", "xdprma_access": "all", "xdprma_express": "false"}
	expect("at first", defaults)
	for _, w := range wins {
		if at := rma.Address(buffer.Bytes(w.Memory())); at%65536 != 0 {
			t.Errorf("the memory starts at %#x", at)
		}
	}
	for rank, err := range j.outcomes(func(n *rma.Node) error {
		info := rma.Info{"accumulate_ordering": "none"}
		if n.Rank() == 1 {
			info["accumulate_ops"] = "all"
		}
		return wins[n.Rank()].SetInfo(j.ctx, info)
	}) {
		if !errors.Is(err, rma.ErrArg) {
			t.Errorf("rank %d: got %v, want class invalid argument", rank, err)
		}
	}
	expect("after a mistake", defaults)
	j.each(func(n *rma.Node) error {
		return wins[n.Rank()].SetInfo(j.ctx, rma.Info{"accumulate_ordering": "waw, rar", "no_locks": "true",
			"mpi_minimum_memory_alignment": "64", "same_size": "false", "accumulate_ops": "same_op", "mpi_accumulate_granularity": "64"})
	})
	expect("changed", rma.Info{"no_locks": "false", "accumulate_ordering": "rar,waw", "accumulate_ops": "same_op",
		"mpi_accumulate_granularity": "0", "same_size": "true", "mpi_minimum_memory_alignment": "65536"})
	j.must(wins[0].Lock(j.ctx, rma.LockShared, 1, 0), wins[0].Unlock(j.ctx, 1)) // no_locks is as it was
	j.each(func(n *rma.Node) error { return wins[n.Rank()].SetInfo(j.ctx, nil) })
	expect("nothing mentioned", rma.Info{"accumulate_ordering": "rar,waw"})

	j.each(func(n *rma.Node) error {
		w, err := rma.Create(j.ctx, n.World(), make([]byte, 8), 1, rma.Info{"mpi_minimum_memory_alignment": "64"})
		if err != nil {
			return err
		}
		if got, ok := w.Info()["mpi_minimum_memory_alignment"]; ok {
			t.Errorf("memory of the user is said to be aligned to %s", got)
		}
		return w.Free(j.ctx)
	})
	j.each(func(n *rma.Node) error { return wins[n.Rank()].Free(j.ctx) })
	if err := wins[0].SetInfo(j.ctx, nil); !errors.Is(err, rma.ErrWin) {
		t.Errorf("after free: %v", err)
	}
}

// TestFreeWaits holds the synchronisation rule of Free: it waits for all ranks,
// unless all have said that they use no locks.
func TestFreeWaits(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := j.windowsOf(func(int) (int, int) { return 8, 1 }, rma.Info{"no_locks": "true"})
	j.must(wins[0].Free(j.ctx)) // rank 1 has not called it, nor does it run
	j.must(wins[1].Free(j.ctx))

	for who := range 2 { // has not said so
		mixed := make([]*rma.Win, 2)
		j.each(func(n *rma.Node) (err error) {
			info := rma.Info{"no_locks": "true"}
			if n.Rank() == who {
				info = nil
			}
			mixed[n.Rank()], err = rma.Allocate(j.ctx, n.World(), 8, 1, info)
			return err
		})
		done, called := make(chan error, 1), make(chan bool)
		go func() {
			close(called)
			done <- mixed[1-who].Free(j.ctx)
		}()
		<-called
		w := mixed[who]
		j.must(w.Lock(j.ctx, rma.LockShared, 1-who, 0), w.Put(buffer.Bytes(make([]byte, 8)), 1-who, rma.At(0)), w.Unlock(j.ctx, 1-who))
		select {
		case err := <-done:
			t.Errorf("free did not wait: %v", err)
		default:
		}
		j.must(w.Free(j.ctx), <-done)
	}
}

// TestFreeAlone ends a Free that waits in vain: the window is freed at this rank.
func TestFreeAlone(t *testing.T) {
	once(t)
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows(8, 8)
	ctx, cancel := context.WithCancel(j.ctx)
	go cancel()
	if err := wins[0].Free(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want cancelled", err)
	}
	if wins[0].Memory() != nil {
		t.Error("the memory is still there")
	}
	if err := wins[0].Free(j.ctx); !errors.Is(err, rma.ErrWin) {
		t.Errorf("the second time: got %v, want invalid window", err)
	}
	var x int64
	w := wins[1]
	j.must(w.Lock(j.ctx, rma.LockShared, 0, rma.ModeNoCheck), w.Put(buffer.Value(&x), 0, rma.At(0)))
	if err := w.Unlock(j.ctx, 0); !errors.Is(err, rma.ErrWin) {
		t.Errorf("the other rank got %v, want invalid window", err)
	}
}

// TestFreeAfterClose frees a window whose node has been closed: its memory goes.
func TestFreeAfterClose(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	w := j.windows(8, 8)[0]
	j.must(w.Lock(j.ctx, rma.LockShared, 1, 0), j.nodes[0].Close())
	for range 2 {
		if err := w.Free(j.ctx); !errors.Is(err, rma.ErrClosed) {
			t.Errorf("got %v, want class closed", err)
		}
		if w.Memory() != nil {
			t.Error("the memory is still there")
		}
	}
}

// TestSizesAndUnitsDifferByRank has another size and unit on each rank, one of them none.
func TestSizesAndUnitsDifferByRank(t *testing.T) {
	j := newJob(t, 3, rma.Limits{})
	shape := func(rank int) (size, unit int) { return 12 * rank, 1 + 3*rank }
	wins := j.windowsOf(shape, nil)
	w := wins[0]
	j.must(w.LockAll(j.ctx, 0))
	for target := range wins {
		size, unit := shape(target)
		mem := make([]byte, size)
		for i := range mem {
			mem[i] = byte(target)
		}
		j.must(w.Put(buffer.Bytes(mem), target, rma.At(0)), w.Flush(j.ctx, target))
		if size > 0 {
			j.must(w.Put(buffer.Bytes([]byte{99}), target, rma.At(int64((size-1)/unit))))
		}
		if err := w.Put(buffer.Bytes(make([]byte, size+1)), target, rma.At(0)); !errors.Is(err, rma.ErrRange) {
			t.Errorf("rank %d: got %v, want class outside the window", target, err)
		}
	}
	j.must(w.UnlockAll(j.ctx))
	for target, w := range wins {
		size, unit := shape(target)
		if w.Size() != size || w.DispUnit() != unit || len(w.Memory()) != size {
			t.Errorf("rank %d: size %d, unit %d, %d bytes", target, w.Size(), w.DispUnit(), len(w.Memory()))
		}
		if err := w.Sync(); err != nil {
			t.Error(err)
		}
		for i, b := range w.Memory() {
			want := byte(target)
			if i == (size-1)/unit*unit {
				want = 99
			}
			if b != want {
				t.Errorf("rank %d, byte %d: %d, want %d", target, i, b, want)
			}
		}
	}
	j.each(func(n *rma.Node) error { return wins[n.Rank()].Free(j.ctx) })
}
