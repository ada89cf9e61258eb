package rma_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
)

// TestFetchAndSwap makes calls on single values of several types, at the rank itself and at
// another one.
func TestFetchAndSwap(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	w, ctx := j.windows(64, 8)[0], j.ctx
	if err := w.LockAll(ctx, 0); err != nil {
		t.Fatal(err)
	}
	for target := range 2 {
		for i, want := range []int64{0, 5, 10} {
			if got, err := rma.Fetch(ctx, w, int64(5), target, rma.At(0), rma.Sum); got != want || err != nil {
				t.Errorf("fetch %d: %d, %v", i, got, err)
			}
		}
		if got, swapped, err := rma.CompareAndSwap(ctx, w, 15, int64(-1), target, rma.At(0)); got != 15 || !swapped || err != nil {
			t.Errorf("swap: %d, %v", got, err)
		}
		if got, swapped, err := rma.CompareAndSwap(ctx, w, 15, int64(7), target, rma.At(0)); got != -1 || swapped || err != nil {
			t.Errorf("a swap that compares with another value: %d, %v", got, err)
		}
		if got, err := rma.Load[int64](ctx, w, target, rma.At(0)); got != -1 || err != nil {
			t.Errorf("load: %d, %v", got, err)
		}
		if err := rma.Store(ctx, w, int64(-1), target, rma.At(0)); err != nil {
			t.Error(err)
		}
		if got, err := rma.Load[uint8](ctx, w, target, rma.At(0)); got != 255 || err != nil {
			t.Errorf("load of a byte: %d, %v", got, err)
		}
		_, err := rma.Fetch(ctx, w, complex(1, 2), target, rma.At(2), rma.Replace)
		if got, err2 := rma.Fetch(ctx, w, complex(0, 1), target, rma.At(2), rma.Prod); got != complex(1, 2) || err != nil || err2 != nil {
			t.Errorf("complex: %v, %v, %v", got, err, err2)
		}
		pair := datatype.Pair[int64]{Value: 3, Index: 4}
		_, err = rma.Fetch(ctx, w, pair, target, rma.At(4), rma.Replace)
		got, err2 := rma.Fetch(ctx, w, datatype.Pair[int64]{Value: 9, Index: 1}, target, rma.At(4), rma.MaxLoc)
		if got != pair || err != nil || err2 != nil {
			t.Errorf("pair: %v, %v, %v", got, err, err2)
		}
		if got, err := rma.Load[datatype.Pair[int64]](ctx, w, target, rma.At(4)); got.Value != 9 || err != nil {
			t.Errorf("the larger pair: %v, %v", got, err)
		}
		if _, err := rma.Load[int64](ctx, w, target, rma.At(8)); !errors.Is(err, rma.ErrRange) {
			t.Errorf("beyond the window: %v", err)
		}
		if _, err := rma.Fetch(ctx, w, 1.5, target, rma.At(0), rma.BAnd); !errors.Is(err, rma.ErrOp) {
			t.Errorf("an operator that is not defined: %v", err)
		}
	}
	if got, err := rma.Fetch(ctx, w, int64(5), rma.ProcNull, rma.At(0), rma.Sum); got != 0 || err != nil {
		t.Errorf("null: %v, %v", got, err)
	}
	if err := w.UnlockAll(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := rma.Load[int64](ctx, w, 1, rma.At(0)); !errors.Is(err, rma.ErrRMASync) {
		t.Errorf("outside of an epoch: %v", err)
	}
}

// TestFetchGivenUp ends the context of a fetch whose result cannot come, and makes others:
// its result must not turn up in theirs.
func TestFetchGivenUp(t *testing.T) {
	once(t)
	j := newJob(t, 3, rma.Limits{})
	ws := j.windows(64, 8)
	if err := ws[2].Lock(j.ctx, rma.LockExclusive, 1, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := rma.Load[int64](j.ctx, ws[2], 1, rma.At(0)); err != nil { // it has the lock
		t.Fatal(err)
	}
	w := ws[0]
	if err := w.LockAll(j.ctx, 0); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(j.ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := rma.Fetch(short, w, int64(77), 1, rma.At(0), rma.Sum); !errors.Is(err, rma.ErrTimeout) {
		t.Errorf("the fetch: %v", err)
	}
	if err := ws[2].Unlock(j.ctx, 1); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if got, err := rma.Fetch(j.ctx, w, int64(1), 2, rma.At(0), rma.Sum); got != int64(i) || err != nil {
			t.Fatalf("fetch %d: %d, %v", i, got, err)
		}
	}
	if got, err := rma.Load[int64](j.ctx, w, 1, rma.At(0)); got != 77 || err != nil {
		t.Errorf("what was given up has added %d, %v", got, err)
	}
	if err := w.UnlockAll(j.ctx); err != nil {
		t.Fatal(err)
	}
}

// TestStructWindows has windows of Go structs.
func TestStructWindows(t *testing.T) {
	type body struct {
		Mass     float64
		Position [3]float32
		Kind     uint8
	}
	mine := make([]body, 3)
	if got := len(rma.BytesOfStructs(mine)); got != 3*24 {
		t.Errorf("%d bytes", got)
	}
	mine[1].Kind = 7
	if got := rma.StructSlice[body](rma.BytesOfStructs(mine)); len(got) != 3 || &got[1] != &mine[1] {
		t.Errorf("%v is another slice", got)
	}
	for name, call := range map[string]func(){
		"a slice of structs with pointers": func() { rma.StructSlice[struct{ Next *int }](make([]byte, 8)) },
		"the bytes of strings":             func() { rma.BytesOfStructs([]string{"a"}) },
		"memory that is not aligned":       func() { rma.StructSlice[body](rma.BytesOfStructs(mine)[1:]) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
	if got := rma.StructSlice[struct{}](make([]byte, 8)); len(got) != 0 {
		t.Errorf("%d structs without anything in them", len(got))
	}
}

// TestFetchTellsItsOwnErrorOnly makes calls on single values after an operation that the
// target refuses: they succeed, and the next flush tells of the other one.
func TestFetchTellsItsOwnErrorOnly(t *testing.T) {
	once(t)
	j := newJob(t, 2, rma.Limits{})
	wins := make([]*rma.Win, 2)
	j.each(func(n *rma.Node) (err error) { // the memory is not aligned, which the target alone knows
		wins[n.Rank()], err = rma.Create(j.ctx, n.World(), make([]byte, 32)[1:], 1, nil)
		return err
	})
	w, x := wins[0], int64(1)
	j.must(w.LockAll(j.ctx, 0))
	for _, call := range []func() error{
		func() error { _, err := rma.Fetch(j.ctx, w, int64(5), 1, rma.At(7), rma.Sum); return err },
		func() error { _, _, err := rma.CompareAndSwap(j.ctx, w, int64(5), int64(6), 1, rma.At(7)); return err },
	} {
		j.must(w.Accumulate(buffer.Value(&x), 1, rma.At(0), rma.Sum), call())
		if err := w.Flush(j.ctx, 1); !errors.Is(err, rma.ErrDisp) {
			t.Errorf("the accumulate: %v", err)
		}
	}
	if _, err := rma.Load[int64](j.ctx, w, 1, rma.At(0)); !errors.Is(err, rma.ErrDisp) {
		t.Errorf("its own error: %v", err)
	}
	j.must(w.UnlockAll(j.ctx))
}

// TestValuesWantAContext makes the calls that wait for their operation with no context: they say so before they do
// anything, at the rank itself, at another one and at none.
func TestValuesWantAContext(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	w := j.windows(8, 8)[0]
	j.must(w.LockAll(j.ctx, 0))
	var none context.Context
	for _, target := range []int{0, 1, rma.ProcNull} {
		for name, call := range map[string]func() error{
			"Fetch":          func() error { _, err := rma.Fetch(none, w, int64(5), target, rma.At(0), rma.Sum); return err },
			"Load":           func() error { _, err := rma.Load[int64](none, w, target, rma.At(0)); return err },
			"Store":          func() error { return rma.Store(none, w, int64(7), target, rma.At(0)) },
			"CompareAndSwap": func() error { _, _, err := rma.CompareAndSwap(none, w, 0, int64(9), target, rma.At(0)); return err },
			"Read":           func() error { return rma.View[int64](w).Read(none, make([]int64, 1), target, rma.At(0)) },
			"Read of nothing": func() error {
				return rma.View[int64](w).Read(none, nil, target, rma.At(0))
			},
		} {
			if err := call(); !errors.Is(err, rma.ErrArg) {
				t.Errorf("%s of rank %d: %v, want the class of a wrong argument", name, target, err)
			}
		}
		if got, err := rma.Load[int64](j.ctx, w, target, rma.At(0)); got != 0 || err != nil {
			t.Errorf("rank %d then has %d, %v", target, got, err)
		}
	}
	j.must(w.UnlockAll(j.ctx))
}

// TestValuesAreRefused has calls that wait for their operation ask for what the target refuses: they return the
// refusal, and no flush tells of it again.
func TestValuesAreRefused(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := make([]*rma.Win, 2)
	j.each(func(n *rma.Node) (err error) { // the memory is not aligned, which the target alone knows
		wins[n.Rank()], err = rma.Create(j.ctx, n.World(), make([]byte, 32)[1:], 1, nil)
		return err
	})
	w := wins[0]
	j.must(w.LockAll(j.ctx, 0))
	for target := range wins {
		for name, call := range map[string]func() error{
			"Fetch":          func() error { _, err := rma.Fetch(j.ctx, w, int64(5), target, rma.At(0), rma.Sum); return err },
			"Load":           func() error { _, err := rma.Load[int64](j.ctx, w, target, rma.At(0)); return err },
			"CompareAndSwap": func() error { _, _, err := rma.CompareAndSwap(j.ctx, w, 0, int64(9), target, rma.At(0)); return err },
		} {
			if err := call(); !errors.Is(err, rma.ErrDisp) {
				t.Errorf("%s of rank %d: %v, want the class of a displacement", name, target, err)
			}
			if err := w.Flush(j.ctx, target); err != nil {
				t.Errorf("a flush after %s of rank %d: %v", name, target, err)
			}
		}
	}
	j.must(w.UnlockAll(j.ctx))
}

// TestReadOfNothingNotifies counts reads of no elements at the target.
func TestReadOfNothingNotifies(t *testing.T) {
	for _, hosts := range [][]string{{"", ""}, {"a", "a"}} {
		j := newJobAt(t, hosts, rma.Limits{})
		wins := j.windowsOf(func(int) (int, int) { return 8, 8 }, rma.Counters(1))
		j.must(wins[0].LockAll(j.ctx, 0))
		for target, w := range wins {
			j.must(rma.View[int64](wins[0]).Read(j.ctx, nil, target, rma.At(0).Notify(0)))
			if _, err := w.WaitNotified(j.ctx, 0, 1); err != nil {
				t.Errorf("%q: rank %d: %v", hosts, target, err)
			}
		}
		j.must(wins[0].UnlockAll(j.ctx))
	}
}
