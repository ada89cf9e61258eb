package rma_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/lab/testjob"
	"github.com/xdprma/xdprma/rma"
)

// noMemory are the tests to which it is all one how ranks access memory: those of the
// pages of docs, and of what judges programs.
var noMemory = []string{"TestRandomProgramsBite", "TestMapping", "TestExamplesOfChapter", "TestMemoryModelPage", "TestOverHostMemory", "TestOverProtectedFrames"}

// overHostMemory tells whether this is the run that TestOverHostMemory makes.
func overHostMemory() bool { return os.Getenv(testjob.EnvHostMemory) != "" }

// repeated tells whether this is a run that TestOverHostMemory or TestOverProtectedFrames makes.
func repeated() bool { return overHostMemory() || os.Getenv(testjob.EnvProtected) != "" }

// TestOverHostMemory runs the tests of this package once more, with ranks that
// access each other's windows in memory. Several processes do so at once, because the
// most of it is waiting.
func TestOverHostMemory(t *testing.T) { repeat(t, testjob.EnvHostMemory) }

// TestOverProtectedFrames runs the tests of this package once more, with ranks that seal their
// frames, or sign them where XDP programs are to execute requests.
func TestOverProtectedFrames(t *testing.T) { repeat(t, testjob.EnvProtected) }

// repeat runs the tests of this package in processes with an environment variable.
func repeat(t *testing.T, variable string) {
	if repeated() {
		return
	}
	testenv.Only(t, testenv.Again)
	list, err := exec.CommandContext(t.Context(), os.Args[0], "-test.list=^(Test|Example)").Output()
	if err != nil {
		t.Fatal(err)
	}
	var shares [4][]string
	for i, name := range strings.Fields(string(list)) {
		if !slices.Contains(noMemory, name) {
			shares[i%len(shares)] = append(shares[i%len(shares)], name)
		}
	}
	if len(shares[3]) == 0 {
		t.Fatalf("the list of tests is %q", list)
	}
	var all sync.WaitGroup
	for _, names := range shares {
		all.Go(func() {
			args := []string{"-test.run=^(" + strings.Join(names, "|") + ")$"}
			if end, ok := t.Deadline(); ok { // it says what hangs before this process ends
				args = append(args, "-test.timeout="+(time.Until(end)*9/10).String())
			}
			if testing.Short() {
				args = append(args, "-test.short")
			}
			c := exec.CommandContext(t.Context(), os.Args[0], args...)
			c.Env = append(os.Environ(), variable+"=1")
			if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS\n") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	all.Wait()
}

func sharedWindows(j *job, info rma.Info, unit int, sizes ...int) []*rma.Win {
	j.t.Helper()
	wins := make([]*rma.Win, len(j.nodes))
	j.each(func(n *rma.Node) (err error) {
		wins[n.Rank()], err = rma.AllocateShared(j.ctx, n.World(), sizes[n.Rank()], unit, info)
		return err
	})
	return wins
}

func freeAll(j *job, wins []*rma.Win) {
	j.t.Helper()
	j.each(func(n *rma.Node) error { return wins[n.Rank()].Free(j.ctx) })
}

// TestSharedContiguous lays the windows of ranks end to end, those without bytes
// too, and stores through the memory of one into that of all.
func TestSharedContiguous(t *testing.T) {
	j := newJobAt(t, []string{"a", "a", "a", "a"}, rma.Limits{})
	wins := sharedWindows(j, nil, 1, 0, 24, 0, 9)
	if got := wins[1].Flavor(); got != rma.FlavorShared {
		t.Errorf("flavour %v", got)
	}
	first, err := wins[3].SharedQuery(rma.ProcNull)
	j.must(err)
	if len(first.Memory) != 24 || cap(first.Memory) != 33 || first.DispUnit != 1 {
		t.Fatalf("the first rank with bytes has %d, capacity %d, unit %d", len(first.Memory), cap(first.Memory), first.DispUnit)
	}
	copy(first.Memory[:33], "the words of rank one, and three!")
	for r, want := range []string{"", "the words of rank one, a", "", "nd three!"} {
		for _, w := range wins {
			s, err := w.SharedQuery(r)
			j.must(err)
			if string(s.Memory) != want || (s.Memory == nil) != (want == "") {
				t.Errorf("rank %d sees %q at rank %d", w.Comm().Rank(), s.Memory, r)
			}
		}
		if got := wins[r].Memory(); string(got) != want || wins[r].Size() != len(want) {
			t.Errorf("rank %d has %q", r, got)
		}
	}
	// The calls that communicate find the same memory, at any alignment.
	var got [9]byte
	j.must(wins[0].Lock(j.ctx, rma.LockShared, 3, 0), wins[0].Get(buffer.Of(got[:]), 3, rma.At(0)), wins[0].Unlock(j.ctx, 3))
	if string(got[:]) != "nd three!" {
		t.Errorf("got %q", got)
	}
	if _, err := wins[0].SharedQuery(4); !errors.Is(err, rma.ErrRank) {
		t.Errorf("rank 4: %v", err)
	}
	freeAll(j, wins)
	if _, err := wins[0].SharedQuery(0); !errors.Is(err, rma.ErrWin) {
		t.Errorf("after Free: %v", err)
	}
}

// TestSharedNoncontig gives each rank whole pages, and with the alignment asked for.
func TestSharedNoncontig(t *testing.T) {
	j := newJobAt(t, []string{"a", "a", "a"}, rma.Limits{})
	wins := sharedWindows(j, rma.Info{"alloc_shared_noncontig": "true", "mpi_minimum_memory_alignment": "65536"}, 8, 8, 16, 8)
	for r := range wins {
		s, err := wins[0].SharedQuery(r)
		j.must(err)
		if at := uint64(rma.Address(buffer.Of(s.Memory))); at%65536 != 0 || cap(s.Memory) != len(s.Memory) || s.DispUnit != 8 {
			t.Errorf("rank %d: at %#x, capacity %d, unit %d", r, at, cap(s.Memory), s.DispUnit)
		}
		rma.Slice[int64](s.Memory)[0] = int64(r + 1)
	}
	for r, w := range wins {
		if got := rma.Slice[int64](w.Memory())[0]; got != int64(r+1) {
			t.Errorf("rank %d has %d", r, got)
		}
	}
	if got := wins[0].Info()["mpi_minimum_memory_alignment"]; got != "65536" {
		t.Errorf("alignment %s in use", got)
	}
	freeAll(j, wins)
}

// TestSharedAgreed has windows lie apart only where all ranks have said so, and all
// ranks told what holds.
func TestSharedAgreed(t *testing.T) {
	j := newJobAt(t, []string{"a", "a", "a"}, rma.Limits{})
	for apart := range len(j.nodes) + 1 { // so many ranks set the key
		wins := make([]*rma.Win, len(j.nodes))
		j.each(func(n *rma.Node) (err error) {
			info := rma.Info{}
			if n.Rank() < apart {
				info["alloc_shared_noncontig"] = "true"
			}
			wins[n.Rank()], err = rma.AllocateShared(j.ctx, n.World(), 8, 8, info)
			return err
		})
		gap, want := int64(8), "false"
		if apart == len(j.nodes) {
			gap, want = int64(os.Getpagesize()), "true"
		}
		for rank, w := range wins {
			if got := w.Info()["alloc_shared_noncontig"]; got != want {
				t.Errorf("%d ranks set it: rank %d has it %s", apart, rank, got)
			}
			first, err := w.SharedQuery(0)
			second, err2 := w.SharedQuery(1)
			j.must(err, err2)
			if got := rma.SubAddress(rma.Address(buffer.Of(second.Memory)), rma.Address(buffer.Of(first.Memory))); got != gap {
				t.Errorf("%d ranks set it: the windows lie %d bytes apart, not %d", apart, got, gap)
			}
		}
		freeAll(j, wins)
	}
}

// TestSharedRefused asks for shared memory across hosts, and for the memory of
// windows that is not here.
func TestSharedRefused(t *testing.T) {
	j := newJobAt(t, []string{"a", "b", "a"}, rma.Limits{})
	for _, err := range j.outcomes(func(n *rma.Node) error {
		_, err := rma.AllocateShared(j.ctx, n.World(), 8, 8, nil)
		return err
	}) {
		if !errors.Is(err, rma.ErrRMAShared) {
			t.Errorf("got %v, want the class for memory that cannot be shared", err)
		}
	}
	for _, err := range j.outcomes(func(n *rma.Node) error {
		host, err := n.World().SplitHost(j.ctx, 0)
		if err != nil {
			return err
		}
		w, err := rma.AllocateShared(j.ctx, host, -8*(n.Rank()/2), 8, nil) // rank 2 asks for a negative size
		if err == nil {
			err = w.Free(j.ctx)
		}
		return err
	})[:1] {
		if !errors.Is(err, rma.ErrSize) {
			t.Errorf("got %v, want invalid size", err)
		}
	}
	created := make([]*rma.Win, 3)
	dynamic := make([]*rma.Win, 3)
	j.each(func(n *rma.Node) (err error) {
		if created[n.Rank()], err = rma.Create(j.ctx, n.World(), make([]byte, 16), 4, nil); err == nil {
			dynamic[n.Rank()], err = rma.CreateDynamic(j.ctx, n.World(), nil)
		}
		return err
	})
	if s, err := created[0].SharedQuery(2); err != nil || s.Memory != nil || s.DispUnit != 4 {
		t.Errorf("another rank's own memory: %v, %v", s, err)
	}
	if s, err := created[0].SharedQuery(0); err != nil || len(s.Memory) != 16 {
		t.Errorf("this rank's own memory: %v, %v", s, err)
	}
	if _, err := dynamic[0].SharedQuery(0); !errors.Is(err, rma.ErrRMAFlavor) {
		t.Errorf("of a dynamic window: %v", err)
	}
}

// TestAllocatedOnHosts queries an allocated window of ranks of two hosts.
func TestAllocatedOnHosts(t *testing.T) {
	j := newJobAt(t, []string{"a", "b", "a"}, rma.Limits{})
	wins := j.windows(8, 8)
	for r, want := range []bool{true, false, true} {
		s, err := wins[0].SharedQuery(r)
		j.must(err)
		if (s.Memory != nil) != want {
			t.Errorf("rank %d: shared is %v", r, !want)
		}
	}
	s, _ := wins[0].SharedQuery(2)
	atomic.StoreInt64(&rma.Slice[int64](s.Memory)[0], 42)
	for _, r := range []int{0, 1} {
		var got int64
		w := wins[r]
		j.must(w.Lock(j.ctx, rma.LockShared, 2, 0), w.Get(buffer.Value(&got), 2, rma.At(0)), w.Unlock(j.ctx, 2))
		if got != 42 {
			t.Errorf("rank %d got %d", r, got)
		}
	}
	freeAll(j, wins)
}

// TestPathsMeet lets ranks of one host, ranks of another and the owner itself
// change the same elements and take the same lock: by memory and by frames.
func TestPathsMeet(t *testing.T) {
	const times = 300
	hosts := []string{"a", "a", "a", "b", "b"}
	j := newJobAt(t, hosts, rma.Limits{})
	wins := j.windows(64, 8)
	j.each(func(n *rma.Node) error {
		w := wins[n.Rank()]
		one, narrow, wide := int64(1), int16(1), complex(1, -1)
		for range times {
			var v int64
			err := errors.Join(
				w.Lock(j.ctx, rma.LockShared, 0, 0),
				w.Accumulate(buffer.Value(&one), 0, rma.At(0), rma.Sum),
				w.Accumulate(buffer.Value(&narrow), 0, rma.At(1), rma.Sum),
				w.Accumulate(buffer.Value(&wide), 0, rma.At(2), rma.Sum), // of 16 bytes: no processor adds those at once
				w.FetchAndOp(buffer.Value(&one), buffer.Value(&v), 0, rma.At(4), rma.Sum),
				w.Unlock(j.ctx, 0),
				w.Lock(j.ctx, rma.LockExclusive, 0, 0),
				w.Get(buffer.Value(&v), 0, rma.At(5)), w.Flush(j.ctx, 0),
			)
			v++
			if err := errors.Join(err, w.Put(buffer.Value(&v), 0, rma.At(5)), w.Unlock(j.ctx, 0)); err != nil {
				return err
			}
		}
		return n.World().Barrier(j.ctx)
	})
	total := int64(len(hosts) * times)
	mem := wins[0].Memory()
	counts, sums, wide := rma.Slice[int64](mem), rma.Slice[int16](mem), rma.Slice[complex128](mem)
	if counts[0] != total || sums[4] != int16(total) || wide[1] != complex(float64(total), -float64(total)) || counts[4] != total || counts[5] != total {
		t.Errorf("got %d, %d, %v, %d, %d, want %d", counts[0], sums[4], wide[1], counts[4], counts[5], total)
	}
	freeAll(j, wins)
}

// TestHolderOnHostDies takes a lock by memory and vanishes. The ranks that wait get it.
func TestHolderOnHostDies(t *testing.T) {
	t.Parallel()
	j := newJobAt(t, []string{"a", "a", "a", "b"}, soon)
	wins := j.windows(8, 8)
	j.each(func(n *rma.Node) error { // sessions with rank 0, and the lock by memory from then on
		w := wins[n.Rank()]
		return errors.Join(w.Lock(j.ctx, rma.LockShared, 0, 0), w.Unlock(j.ctx, 0), n.World().Barrier(j.ctx))
	})
	j.must(wins[1].Lock(j.ctx, rma.LockExclusive, 0, 0))
	j.nodes[1].Silence()
	for _, r := range []int{3, 2, 0} {
		w := wins[r]
		x := int64(r)
		j.must(w.Lock(j.ctx, rma.LockExclusive, 0, 0), w.Put(buffer.Value(&x), 0, rma.At(0)), w.Unlock(j.ctx, 0))
	}
}

// TestSilentOnHost accesses the memory of a rank that has vanished until the class
// for it comes: a loop that waits for the dead ends.
func TestSilentOnHost(t *testing.T) {
	t.Parallel()
	j := newJobAt(t, []string{"a", "a"}, soon)
	w := j.windows(8, 8)[0]
	var old int64
	j.must(w.LockAll(j.ctx, 0))
	j.nodes[1].Silence()
	var err error
	for ; err == nil && j.ctx.Err() == nil; time.Sleep(time.Millisecond) {
		err = errors.Join(w.FetchAndOp(buffer.Buffer{}, buffer.Value(&old), 1, rma.At(0), rma.NoOp), w.Flush(j.ctx, 1))
	}
	if !errors.Is(err, rma.ErrProcFailed) {
		t.Errorf("got %v, want process failed", err)
	}
}

// TestDirectRefused has calls on memory that is mapped refused where only the
// memory itself can tell what is wrong: the windows of shared memory lie end to end.
func TestDirectRefused(t *testing.T) {
	j := newJobAt(t, []string{"a", "a"}, rma.Limits{})
	wins := sharedWindows(j, nil, 1, 4, 12)
	w := wins[0]
	x := int64(7)
	vec, err := datatype.Vector(1, 1, 1, datatype.Int64)
	vec = committed(t, vec, err)
	for name, call := range map[string]func() error{
		"accumulate": func() error { return w.Accumulate(buffer.Value(&x), 1, rma.At(0), rma.Sum) },
		"typed":      func() error { return w.Accumulate(buffer.Value(&x), 1, rma.At(0).As(1, vec), rma.Sum) },
	} {
		j.must(w.Lock(j.ctx, rma.LockShared, 1, 0), call())
		if err := w.Unlock(j.ctx, 1); !errors.Is(err, rma.ErrDisp) {
			t.Errorf("%s at an odd address: %v, want invalid displacement", name, err)
		}
	}
	j.must(w.Lock(j.ctx, rma.LockShared, 1, 0))
	old := int64(0)
	r, err := w.RfetchAndOp(buffer.Value(&x), buffer.Value(&old), 1, rma.At(0), rma.Sum)
	j.must(err)
	var e *rma.Error
	if err := r.Wait(j.ctx); !errors.Is(err, rma.ErrDisp) || !errors.As(err, &e) || e.Op != "rfetch_and_op" {
		t.Errorf("followed by a request: %v, want rfetch_and_op, invalid displacement", err)
	}
	j.must(w.Unlock(j.ctx, 1))
	if got := fmt.Sprint(wins[1].Memory()); got != fmt.Sprint(make([]byte, 12)) {
		t.Errorf("the window has changed: %v", got)
	}
	freeAll(j, wins)
}

// BenchmarkHost measures calls between ranks of one host, in memory.
func BenchmarkHost(b *testing.B) {
	j := newJobAt(b, []string{"a", "a"}, rma.Limits{})
	w := j.windows(1<<20, 8)[0]
	x, old := []int64{1}, []int64{0}
	large := make([]byte, 1<<20)
	begin := func() error { return w.Lock(j.ctx, rma.LockShared, 1, 0) }
	end := func() error { return w.Unlock(j.ctx, 1) }
	none := func() error { return nil }
	for _, c := range []struct {
		name       string
		bytes      int64
		begin, end func() error
		call       func() error
	}{
		{"put", 0, begin, end, func() error { return w.Put(buffer.Of(x), 1, rma.At(0)) }},
		{"put-flush", 0, begin, end, func() error { return first(w.Put(buffer.Of(x), 1, rma.At(0)), w.Flush(j.ctx, 1)) }},
		{"fetch-and-op", 0, begin, end, func() error { return w.FetchAndOp(buffer.Of(x), buffer.Of(old), 1, rma.At(0), rma.Sum) }},
		{"lock-put-unlock", 0, none, none, func() error {
			return first(w.Lock(j.ctx, rma.LockExclusive, 1, 0), w.Put(buffer.Of(x), 1, rma.At(0)), w.Unlock(j.ctx, 1))
		}},
		{"put-1MiB", 1 << 20, begin, end, func() error { return w.Put(buffer.Of(large), 1, rma.At(0)) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			j.must(c.begin())
			b.SetBytes(c.bytes)
			for b.Loop() {
				j.must(c.call())
			}
			j.must(c.end())
		})
	}
}

// TestLoadsUnderLocks adds by load and store to a word of another rank's memory, under
// its exclusive lock: Lock waits for it, though nothing is issued.
func TestLoadsUnderLocks(t *testing.T) {
	const times = 200
	j := newJobAt(t, []string{"a", "a", "a"}, rma.Limits{})
	for _, info := range []rma.Info{nil, {"xdprma_check_conflicts": "true"}} {
		wins := sharedWindows(j, info, 8, 8, 8, 8)
		j.each(func(n *rma.Node) error {
			w := wins[n.Rank()]
			s, err := w.SharedQuery(1)
			if err != nil {
				return err
			}
			word := &rma.Slice[int64](s.Memory)[0]
			for range times {
				if err := w.Lock(j.ctx, rma.LockExclusive, 1, 0); err != nil {
					return err
				}
				v := atomic.LoadInt64(word)
				for range 50 {
					v = max(v, atomic.LoadInt64(word))
				}
				atomic.StoreInt64(word, v+1)
				if err := w.Unlock(j.ctx, 1); err != nil {
					return err
				}
			}
			return nil
		})
		if got := rma.Slice[int64](wins[1].Memory())[0]; got != int64(len(wins)*times) {
			t.Errorf("%v: the counter is %d, want %d", info, got, len(wins)*times)
		}
		freeAll(j, wins)
	}
}

// TestLockAllHoldsOwn keeps the exclusive lock of a rank's window from others while the
// rank locks all: it may load and store its own memory then.
func TestLockAllHoldsOwn(t *testing.T) {
	for _, hosts := range [][]string{{"", ""}, {"a", "a"}} {
		j := newJobAt(t, hosts, rma.Limits{})
		wins := j.windows(8, 8)
		j.must(wins[1].LockAll(j.ctx, 0))
		one := int64(1)
		locked := make(chan error)
		go func() {
			w := wins[0]
			err := w.Lock(j.ctx, rma.LockExclusive, 1, 0)
			locked <- errors.Join(err, w.Put(buffer.Value(&one), 1, rma.At(0)), w.Unlock(j.ctx, 1))
		}()
		testenv.Await(t, "the wait for the lock", func() bool { return j.nodes[1].LockWaits() > 0 })
		if v := atomic.LoadInt64(&rma.Slice[int64](wins[1].Memory())[0]); v != 0 {
			t.Errorf("hosts %q: another rank has the exclusive lock", hosts)
		}
		j.must(wins[1].UnlockAll(j.ctx), <-locked)
		j.close()
	}
}

// TestLockCancelledOnHost ends the context of a rank that waits for the lock of
// another rank's memory: there is no epoch, and the request does not linger.
func TestLockCancelledOnHost(t *testing.T) {
	j := newJobAt(t, []string{"a", "a", "a"}, rma.Limits{})
	wins := j.windows(8, 8)
	j.must(wins[1].Lock(j.ctx, rma.LockExclusive, 0, 0))
	for range 3 {
		short, cancel := context.WithTimeout(j.ctx, 5*time.Millisecond)
		defer cancel()
		if err := wins[2].Lock(short, rma.LockExclusive, 0, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("lock: %v", err)
		}
		if err := wins[2].LockAll(short, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("lock_all: %v", err)
		}
	}
	if err := wins[2].Unlock(j.ctx, 0); !errors.Is(err, rma.ErrRMASync) {
		t.Errorf("unlock: %v", err)
	}
	j.must(wins[1].Unlock(j.ctx, 0))
	for r := range wins { // nobody has it
		w := wins[r]
		j.must(w.Lock(j.ctx, rma.LockExclusive, 0, 0), w.Unlock(j.ctx, 0), w.LockAll(j.ctx, 0), w.UnlockAll(j.ctx))
	}
	freeAll(j, wins)
}

// TestLockOfDeadOnHost locks and unlocks the window of a rank that has vanished, as
// programs do that load and store its memory, until the class for it comes.
func TestLockOfDeadOnHost(t *testing.T) {
	t.Parallel()
	j := newJobAt(t, []string{"a", "a"}, soon)
	w := j.windows(8, 8)[0]
	j.must(w.Lock(j.ctx, rma.LockShared, 1, 0), w.Unlock(j.ctx, 1))
	j.nodes[1].Silence()
	var err error
	for ; err == nil && j.ctx.Err() == nil; time.Sleep(time.Millisecond) {
		if err = w.Lock(j.ctx, rma.LockShared, 1, 0); err == nil {
			err = w.Unlock(j.ctx, 1)
		}
	}
	if !errors.Is(err, rma.ErrProcFailed) {
		t.Errorf("got %v, want process failed", err)
	}
}

// TestHostNotMapped has a rank of a host fail to map its memory: it and the others use
// frames between them, and all find the same.
func TestHostNotMapped(t *testing.T) {
	j := newJobAt(t, []string{"a", "a", "a"}, rma.Limits{})
	restore := rma.FailMaps(2)
	wins := j.windows(8, 8)
	restore()
	j.each(func(n *rma.Node) error {
		w, all := wins[n.Rank()], others(n, true)
		for range 100 {
			if err := first(w.LockAll(j.ctx, 0), addOne(w, all), w.UnlockAll(j.ctx)); err != nil {
				return err
			}
		}
		if err := n.World().Barrier(j.ctx); err != nil {
			return err
		}
		if got := rma.Slice[int64](w.Memory())[0]; got != 300 {
			return fmt.Errorf("the sum is %d, want 300", got)
		}
		return nil
	})
	freeAll(j, wins)
}
