package rma_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/logs"
	"github.com/xdprma/xdprma/internal/lab/testjob"
	"github.com/xdprma/xdprma/rma"
)

// spin is an element of several predefined datatypes, with padding.
type spin struct {
	Up    bool
	Power float64
}

// TestWindowOfElements has ranks make all calls on windows of numbers, of arrays and of
// structs, each at the other.
func TestWindowOfElements(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	j.each(func(n *rma.Node) error {
		ctx, to := j.ctx, 1-n.Rank()
		numbers, e1 := rma.AllocateOf[int32](ctx, n.World(), 6)
		grid, e2 := rma.CreateOf(ctx, n.World(), rma.MakeSlice[[3]float32](4))
		spins, e3 := rma.AllocateSharedOf[spin](ctx, n.Self(), 3, rma.Noncontiguous())
		if err := first(e1, e2, e3); err != nil {
			return err
		}
		if len(numbers.Memory()) != 6 || numbers.DispUnit() != 4 || len(grid.Memory()) != 4 || grid.DispUnit() != 12 {
			t.Errorf("%d elements of %d bytes, and %d of %d", len(numbers.Memory()), numbers.DispUnit(), len(grid.Memory()), grid.DispUnit())
		}
		former, into, rest := int32(0), make([]int32, 2), make([]int32, 2)
		if err := first(
			numbers.LockAll(ctx),
			numbers.Put([]int32{10, 20}, to, rma.At(uint8(1))),
			numbers.PutValue(30, to, rma.At(int64(3))),
			numbers.Flush(ctx, to),
			numbers.Update(5, to, rma.At(1), rma.Sum),
			numbers.Accumulate([]int32{1, 2}, to, rma.At(2), rma.Sum),
			numbers.GetAccumulate([]int32{100, 100}, into, to, rma.At(1), rma.Max),
			numbers.Flush(ctx, to),
			numbers.Get(rest, to, rma.At(2)),
			numbers.Store(ctx, 7, to, rma.At(5)),
		); err != nil {
			return err
		}
		r, err := numbers.Rget(rest, to, rma.At(2))
		if err = first(err, r.Wait(ctx)); err != nil || !slices.Equal(rest, []int32{100, 32}) || !slices.Equal(into, []int32{15, 21}) {
			t.Errorf("got %d and before it %d: %v", rest, into, err)
		}
		if former, err = numbers.Fetch(ctx, 1, to, rma.At(5), rma.Sum); former != 7 || err != nil {
			t.Errorf("fetch: got %d, %v", former, err)
		}
		if former, swapped, err := numbers.CompareAndSwap(ctx, 9, 1, to, rma.At(5)); former != 8 || swapped || err != nil {
			t.Errorf("compare and swap: got %d, %t, %v", former, swapped, err)
		}
		if former, swapped, err := numbers.CompareAndSwap(ctx, 8, 9, to, rma.At(5)); former != 8 || !swapped || err != nil {
			t.Errorf("compare and swap: got %d, %t, %v", former, swapped, err)
		}
		if _, swapped, err := numbers.CompareAndSwap(ctx, 0, 0, rma.ProcNull, rma.At(5)); swapped || err != nil {
			t.Errorf("compare and swap at nobody: %t, %v", swapped, err)
		}
		if got, err := numbers.Load(ctx, to, rma.At(5)); got != 9 || err != nil {
			t.Errorf("load: got %d, %v", got, err)
		}
		all := make([]int32, 6)
		if err := numbers.Read(ctx, all, to, rma.At(0)); err != nil || !slices.Equal(all, []int32{0, 100, 100, 32, 0, 9}) {
			t.Errorf("read: got %d, %v", all, err)
		}
		// Bytes of the same window.
		if got, err := rma.View[uint8](numbers.Win).Load(ctx, to, rma.At(5)); got != 9 || err != nil {
			t.Errorf("a byte: got %d, %v", got, err)
		}

		point := make([][3]float32, 1)
		if err := first(grid.LockAll(ctx), grid.PutValue([3]float32{1, 2, 3}, to, rma.At(2)), grid.Flush(ctx, to),
			grid.Update([3]float32{1, 1, 1}, to, rma.At(2), rma.Sum), grid.Flush(ctx, to),
			grid.Read(ctx, point, to, rma.At(2))); err != nil || point[0] != [3]float32{2, 3, 4} {
			t.Errorf("a point: got %v, %v", point, err)
		}
		if _, err := grid.Load(ctx, to, rma.At(0)); !errors.Is(err, rma.ErrCount) {
			t.Errorf("load of a point: got %v, want class count", err)
		}

		one := make([]spin, 1)
		mine, err := spins.Shared(0)
		if err = first(err, spins.LockAll(ctx), spins.PutValue(spin{true, 2.5}, 0, rma.At(1)), spins.Read(ctx, one, 0, rma.At(1))); err != nil || one[0] != (spin{true, 2.5}) || mine[1] != one[0] {
			t.Errorf("a struct: got %v, %v, %v", one, mine, err)
		}
		if err := spins.Update(spin{}, 0, rma.At(0), rma.Sum); !errors.Is(err, rma.ErrType) {
			t.Errorf("update of a struct: got %v, want class type", err)
		}
		if _, err := spins.Fetch(ctx, spin{}, 0, rma.At(0), rma.Replace); !errors.Is(err, rma.ErrType) {
			t.Errorf("fetch of a struct: got %v, want class type", err)
		}
		return first(spins.UnlockAll(ctx), spins.Free(ctx), grid.UnlockAll(ctx), grid.Free(ctx), numbers.UnlockAll(ctx), numbers.Free(ctx))
	})
}

// TestElementsRefused makes windows that there cannot be; if one rank asks for it, the call
// fails at all.
func TestElementsRefused(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	j.each(func(n *rma.Node) error {
		ctx, c := j.ctx, n.World()
		if _, err := rma.AllocateOf[int64](ctx, c, 5-10*n.Rank()); !errors.Is(err, rma.ErrSize) {
			t.Errorf("a negative number of elements: got %v, want class size", err)
		}
		if _, err := rma.AllocateOf[struct{}](ctx, c, 5); !errors.Is(err, rma.ErrType) {
			t.Errorf("elements without bytes: got %v, want class type", err)
		}
		if _, err := rma.CreateOf(ctx, c, []string{"pointers"}); !errors.Is(err, rma.ErrType) {
			t.Errorf("a window of strings: got %v, want class type", err)
		}
		w, err := rma.Allocate(ctx, c, 64, 8, rma.Info{"same_size": "true"}, rma.MinAlignment(1<<16), rma.SameOp(), rma.Unordered(), rma.SameSize())
		if err != nil {
			return err
		}
		info := w.Info()
		for key, want := range map[string]string{"same_size": "true", "mpi_minimum_memory_alignment": "65536", "accumulate_ops": "same_op", "accumulate_ordering": "none"} {
			if info[key] != want {
				t.Errorf("info key %s is %q, want %q", key, info[key], want)
			}
		}
		v := rma.View[string](w)
		if err := first(w.LockAll(ctx), w.Sync()); err != nil {
			return err
		}
		if err := v.PutValue("pointer", 0, rma.At(0)); !errors.Is(err, rma.ErrType) {
			t.Errorf("put of a string: got %v, want class type", err)
		}
		for name, memory := range map[string]func(){
			"pointers": func() { rma.View[*int](w).Memory() },
			"strings":  func() { rma.View[string](w).Memory() },
			"anything": func() { rma.View[any](w).Memory() },
			"structs":  func() { rma.View[struct{ p *int }](w).Memory() },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("the window's bytes are taken for %s", name)
					}
				}()
				memory()
			}()
		}
		if _, err := rma.View[*int](w).Shared(n.Rank()); !errors.Is(err, rma.ErrType) {
			t.Errorf("memory as pointers: got %v, want class type", err)
		}
		return first(w.UnlockAll(ctx), w.Free(ctx))
	})
}

// TestNobodyHasZero reads at nobody after a call has read something at somebody.
func TestNobodyHasZero(t *testing.T) {
	j := newJob(t, 1, rma.Limits{})
	w, err := rma.AllocateOf[int64](j.ctx, j.nodes[0].World(), 1)
	j.must(err, w.LockAll(j.ctx))
	for range 10 {
		j.must(w.Store(j.ctx, 4711, 0, rma.At(0)))
		if got, err := w.Load(j.ctx, 0, rma.At(0)); got != 4711 || err != nil {
			t.Fatal(got, err)
		}
		if got, err := w.Load(j.ctx, rma.ProcNull, rma.At(0)); got != 0 || err != nil {
			t.Errorf("load at nobody: %d, %v", got, err)
		}
		if got, err := w.Fetch(j.ctx, 5, rma.ProcNull, rma.At(0), rma.Sum); got != 0 || err != nil {
			t.Errorf("fetch at nobody: %d, %v", got, err)
		}
		if got, swapped, err := w.CompareAndSwap(j.ctx, 4711, 5, rma.ProcNull, rma.At(0)); got != 0 || swapped || err != nil {
			t.Errorf("compare and swap at nobody: %d, %t, %v", got, swapped, err)
		}
	}
	j.must(w.UnlockAll(j.ctx), w.Free(j.ctx))
}

// TestHintsAreTaken holds the functions that return info to the keys and values that a window
// takes.
func TestHintsAreTaken(t *testing.T) {
	j := newJob(t, 1, rma.Limits{})
	for key, info := range map[string]rma.Info{
		"no_locks": rma.NoLocks(), "accumulate_ordering": rma.Unordered(), "accumulate_ops": rma.SameOp(), "same_size": rma.SameSize(),
		"alloc_shared_noncontig": rma.Noncontiguous(), "mpi_minimum_memory_alignment": rma.MinAlignment(1 << 13), "xdprma_check_conflicts": rma.CheckConflicts(),
		"xdprma_ordered": rma.Ordered(),
	} {
		w, err := rma.Allocate(j.ctx, j.nodes[0].World(), 8, 8, info)
		if err != nil {
			t.Fatal(key, err)
		}
		if got := w.Info()[key]; len(info) != 1 || got != info[key] {
			t.Errorf("%s: %v, and the window has %q", key, info, got)
		}
		j.must(w.Free(j.ctx))
	}
	for _, wanted := range []bool{true, false} {
		w, err := rma.Allocate(j.ctx, j.nodes[0].World(), 8, 8, rma.Unattended(wanted))
		if err != nil {
			t.Fatal(err)
		}
		j.must(w.Free(j.ctx))
	}
}

// TestMadeSlicesAreAligned makes slices of elements that Go aligns to less than accumulates
// need.
func TestMadeSlicesAreAligned(t *testing.T) {
	for n := range 50 {
		pairs, waves, bytes := rma.MakeSlice[datatype.Pair[int32]](n), rma.MakeSlice[complex64](n), rma.MakeSlice[byte](n)
		for name, at := range map[string]uintptr{
			"pairs": uintptr(unsafe.Pointer(unsafe.SliceData(pairs))), "complex64": uintptr(unsafe.Pointer(unsafe.SliceData(waves))), "bytes": uintptr(unsafe.Pointer(unsafe.SliceData(bytes))),
		} {
			if at%64 != 0 {
				t.Errorf("%d %s at %#x", n, name, at)
			}
		}
		if len(pairs) != n || cap(pairs) != n || len(waves) != n || len(bytes) != n {
			t.Errorf("%d, %d, %d elements, want %d", len(pairs), len(waves), len(bytes), n)
		}
		for i := range bytes {
			bytes[i] = 1
		}
	}
}

// TestAbort has a rank abort: it says why, and those who need it are told.
func TestAbort(t *testing.T) {
	places, stop, err := testjob.Places(2)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var log logs.Log
	status := make(chan int, 1)
	nodes := make([]*rma.Node, 2)
	for rank := range places {
		c := testjob.Config(&places[rank])
		c.Logger, c.Exit = log.Logger(), func(code int) { status <- code }
		if nodes[rank], err = rma.Join(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		defer nodes[rank].Close()
	}
	met := make(chan error, 1)
	go func() { met <- nodes[1].World().Barrier(t.Context()) }()
	if err := first(nodes[0].World().Barrier(t.Context()), <-met); err != nil {
		t.Fatal(err)
	}
	go func() { met <- nodes[1].World().Barrier(t.Context()) }()
	nodes[0].Abort(3, errors.New("the input is damaged"))
	if err := <-met; !errors.Is(err, rma.ErrProcFailed) || !strings.Contains(err.Error(), "it has aborted the job: the input is damaged") {
		t.Errorf("the other rank: got %v, want class process failed and the reason", err)
	}
	if got := <-status; got != 3 || log.Lines("the input is damaged") == 0 {
		t.Errorf("status %d, log %s", got, &log)
	}
	if self := nodes[1].Self(); self.Size() != 1 || self.Name() != "MPI_COMM_SELF" || self.WorldRank(0) != 1 || !errors.Is(self.Free(), comm.ErrArg) {
		t.Errorf("the communicator of oneself: %d ranks, %s", self.Size(), self.Name())
	}
}

// TestPostToGroups posts to groups, and to lists that have ranks which do not exist.
func TestPostToGroups(t *testing.T) {
	j := newJob(t, 3, rma.Limits{})
	j.each(func(n *rma.Node) error {
		ctx := j.ctx
		w, err := rma.AllocateOf[int64](ctx, n.World(), 3)
		if err != nil {
			return err
		}
		others, err := n.World().Group().Excl([]int{n.Rank()})
		if err = first(err, w.PostGroup(ctx, others), w.StartGroup(ctx, others)); err != nil {
			return err
		}
		for r := range n.Size() {
			if r != n.Rank() {
				err = first(err, w.PutValue(1, r, rma.At(n.Rank())))
			}
		}
		err = first(err, w.Complete(ctx), w.Wait(ctx))
		// In a line each has two neighbours or one.
		neighbours := []int{n.Rank() - 1, n.Rank() + 1}
		if n.Rank() == 0 {
			neighbours[0] = rma.ProcNull
		}
		if n.Rank() == 2 {
			neighbours[1] = rma.ProcNull
		}
		err = first(err, w.Post(ctx, neighbours), w.Start(ctx, neighbours))
		for _, r := range neighbours {
			err = first(err, w.PutValue(2, r, rma.At(n.Rank())))
		}
		err = first(err, w.Complete(ctx), w.Wait(ctx))
		want := [][]int64{{0, 2, 1}, {2, 0, 2}, {1, 2, 0}}[n.Rank()]
		if !slices.Equal(w.Memory(), want) {
			t.Errorf("rank %d has %d, want %d", n.Rank(), w.Memory(), want)
		}
		half, err2 := n.World().Split(ctx, n.Rank()/2, 0)
		if err = first(err, err2); err != nil {
			return err
		}
		in, err := rma.AllocateOf[int64](ctx, half, 1)
		if err != nil {
			return err
		}
		if err := in.PostGroup(ctx, n.World().Group()); !errors.Is(err, rma.ErrGroup) {
			t.Errorf("post to processes outside: got %v, want class group", err)
		}
		if err := in.StartGroup(ctx, n.World().Group()); !errors.Is(err, rma.ErrGroup) {
			t.Errorf("start on processes outside: got %v, want class group", err)
		}
		return first(in.Free(ctx), w.Free(ctx))
	})
}
