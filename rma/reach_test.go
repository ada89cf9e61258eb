package rma_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/rma"
)

// Windows of hosts with several ranks lie in memory that the ranks of the host and their
// XDP programs reach.

// oneAway are ranks 0 and 1 on one host, and rank 2 on another.
var oneAway = []string{"a", "a", "b"}

// awaitAll makes small calls from a rank until the programs of the given targets answer.
func awaitAll(j *job, w *rma.Win, targets ...int) {
	j.t.Helper()
	var got int64
	for _, r := range targets {
		for before := executed(j.nodes[r]); executed(j.nodes[r]) == before; {
			j.must(w.Lock(j.ctx, rma.LockShared, r, 0), w.Get(buffer.Value(&got), r, rma.At(0)), w.Unlock(j.ctx, r))
		}
	}
}

// TestHostIsInReach has a rank of another host find each window of a host at its place, by
// the targets' programs, and the ranks of the host find the same by load and store.
func TestHostIsInReach(t *testing.T) {
	j := newLabJobAt(t, oneAway, false, rma.Limits{})
	size := []int{70_000, 4096, 8}
	wins := j.windowsOf(func(rank int) (int, int) { return size[rank], 1 }, nil)
	for r, w := range wins {
		if w.Info()["xdprma_express"] != "true" || !w.Unattended(0) || !w.Unattended(1) || !w.Unattended(2) {
			t.Errorf("rank %d: not all is in reach, info %v", r, w.Info())
		}
		s, err := wins[0].SharedQuery(r)
		j.must(err)
		if (s.Memory != nil) != (r < 2) || bytes.Count(w.Memory(), []byte{0}) != size[r] {
			t.Errorf("rank %d: %d bytes for rank 0, or they are not zero", r, len(s.Memory))
		}
	}
	w := wins[2]
	awaitAll(j, w, 0, 1)
	before := executed(j.nodes[0]) + executed(j.nodes[1])
	j.must(w.LockAll(j.ctx, 0))
	for n := byte(1); n < 100 && executed(j.nodes[0])+executed(j.nodes[1]) < before+6; n++ {
		for r := range 2 {
			for _, at := range []int{0, 65536 - 4096 - 4, size[r] - 8} { // also across the end of a page
				if at %= size[r]; at%8 != 0 {
					at -= 4
				}
				want, got := bytes.Repeat([]byte{n, byte(r)}, 4), make([]byte, 8)
				j.must(w.Put(buffer.Of(want), r, rma.At(int64(at))), w.Flush(j.ctx, r), w.Get(buffer.Of(got), r, rma.At(int64(at))), w.Flush(j.ctx, r))
				s, err := wins[1].SharedQuery(r)
				j.must(err)
				if !bytes.Equal(got, want) || !bytes.Equal(s.Memory[at:at+8], want) || !bytes.Equal(wins[r].Memory()[at:at+8], want) {
					t.Fatalf("rank %d at %d: got %x, another rank of the host %x, want %x", r, at, got, s.Memory[at:at+8], want)
				}
			}
		}
	}
	j.must(w.UnlockAll(j.ctx))
	if executed(j.nodes[0])+executed(j.nodes[1]) < before+6 {
		t.Error("the programs have executed nothing")
	}
	freeAll(j, wins)
}

// TestLockIsSharedWithHostAndProgram has a rank of the host, the owner, its program and
// its user space take one lock, and add under it to words that nobody adds to at once.
func TestLockIsSharedWithHostAndProgram(t *testing.T) {
	const times = 150
	hosts := []string{"a", "a", "b", "c"}
	j := newLabJobAt(t, hosts, false, rma.Limits{})
	wins := j.windows(64, 8)
	awaitAll(j, wins[2], 1)
	before := executed(j.nodes[1])
	j.each(func(n *rma.Node) error {
		w := wins[n.Rank()]
		one, real, v := int64(1), float64(1), int64(0)
		for range times {
			err := errors.Join(
				// One request, which the program executes if the lock is free.
				w.Lock(j.ctx, rma.LockExclusive, 1, 0),
				w.Accumulate(buffer.Value(&one), 1, rma.At(0), rma.Sum),
				w.FetchAndOp(buffer.Value(&one), buffer.Value(&v), 1, rma.At(1), rma.Sum),
				w.Unlock(j.ctx, 1),
				// This one is for user space.
				w.Lock(j.ctx, rma.LockShared, 1, 0),
				w.Accumulate(buffer.Value(&real), 1, rma.At(2), rma.Sum),
				w.Unlock(j.ctx, 1),
				// A load and a store, with others kept out between them.
				w.Lock(j.ctx, rma.LockExclusive, 1, 0),
				w.Get(buffer.Value(&v), 1, rma.At(3)), w.Flush(j.ctx, 1),
			)
			v++
			if err := errors.Join(err, w.Put(buffer.Value(&v), 1, rma.At(3)), w.Unlock(j.ctx, 1)); err != nil {
				return err
			}
		}
		return n.World().Barrier(j.ctx)
	})
	total := int64(len(hosts) * times)
	counts, reals := rma.Slice[int64](wins[1].Memory()), rma.Slice[float64](wins[1].Memory())
	if counts[0] != total || counts[1] != total || reals[2] != float64(total) || counts[3] != total {
		t.Errorf("got %d, %d, %v, %d, want %d", counts[0], counts[1], reals[2], counts[3], total)
	}
	t.Logf("the program has executed %d requests", executed(j.nodes[1])-before)
	awaitAll(j, wins[2], 1) // the lock is free
	freeAll(j, wins)
}

// TestHolderBesideProgramDies takes the lock of a window in reach by memory and vanishes.
// A rank of another host gets it, and the program executes again.
func TestHolderBesideProgramDies(t *testing.T) {
	t.Parallel()
	j := newLabJobAt(t, oneAway, false, soon)
	wins := j.windows(8, 8)
	w, one := wins[2], int64(1)
	awaitAll(j, w, 1)
	j.must(wins[0].Lock(j.ctx, rma.LockShared, 1, 0), wins[0].Unlock(j.ctx, 1)) // a session
	j.must(wins[0].Lock(j.ctx, rma.LockExclusive, 1, 0))
	j.nodes[0].Silence()
	j.nodes[0] = nil // nothing is left of its device to be closed
	j.must(w.Lock(j.ctx, rma.LockExclusive, 1, 0), w.Accumulate(buffer.Value(&one), 1, rma.At(0), rma.Sum), w.Unlock(j.ctx, 1))
	awaitAll(j, w, 1)
	if got := rma.Slice[int64](wins[1].Memory())[0]; got != 1 {
		t.Errorf("the sum is %d", got)
	}
}

// TestFreedWhereOthersMapIt frees a window while another rank of the host maps its memory,
// and one of another host accesses it: calls are refused, and the memory stays.
func TestFreedWhereOthersMapIt(t *testing.T) {
	j := newLabJobAt(t, oneAway, false, rma.Limits{})
	wins := j.windows(64, 8)
	awaitAll(j, wins[2], 0, 1)
	s, err := wins[0].SharedQuery(1)
	j.must(err)
	given, giveUp := context.WithCancel(j.ctx)
	giveUp() // the other ranks are not waited for
	if err := wins[1].Free(given); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	atomic.StoreInt64(&rma.Slice[int64](s.Memory)[7], 5)
	for _, r := range []int{0, 2} {
		w, v := wins[r], int64(1)
		err := w.LockAll(j.ctx, 0)
		for err == nil && j.ctx.Err() == nil {
			err = first(w.Put(buffer.Value(&v), 1, rma.At(0)), w.Flush(j.ctx, 1))
		}
		if !errors.Is(err, rma.ErrWin) {
			t.Errorf("rank %d: got %v, want the class for a window that is gone", r, err)
		}
		_ = w.UnlockAll(j.ctx)
	}
	if v := atomic.LoadInt64(&rma.Slice[int64](s.Memory)[7]); v != 5 {
		t.Errorf("the memory has %d", v)
	}
	var got int64
	w := wins[2] // the window of rank 0 is in the same memory
	j.must(w.Lock(j.ctx, rma.LockShared, 0, 0), w.Get(buffer.Value(&got), 0, rma.At(0)), w.Unlock(j.ctx, 0))
	for _, r := range []int{0, 2} {
		_ = wins[r].Free(given)
	}
}

// kernelMemory lists the maps of BPF that this process holds, and where it has mapped them.
func kernelMemory(t *testing.T) map[string]bool {
	t.Helper()
	held := map[string]bool{}
	list, err := os.ReadDir("/proc/self/fdinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		info, _ := os.ReadFile("/proc/self/fdinfo/" + e.Name()) // the descriptor may be closed by now
		if _, id, found := strings.Cut(string(info), "map_id:"); found {
			id, _, _ = strings.Cut(id, "\n")
			held["map "+strings.TrimSpace(id)] = true
		}
	}
	mapped, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mapped)) {
		if strings.Contains(line, "bpf-map") {
			at, _, _ := strings.Cut(line, " ")
			held["mapping at "+at] = true
		}
	}
	return held
}

// TestHostInReachLeavesNothing makes and frees windows, also where a rank cannot map the
// memory of its host: it uses frames then.
func TestHostInReachLeavesNothing(t *testing.T) {
	j := newLabJobAt(t, oneAway, false, rma.Limits{})
	before := kernelMemory(t)
	for range 3 {
		freeAll(j, j.windows(100_000, 8))
	}
	restore := rma.FailMaps(1)
	wins := j.windows(8, 8)
	restore()
	one := int64(1)
	for _, w := range wins {
		j.must(w.LockAll(j.ctx, 0), w.Accumulate(buffer.Value(&one), 0, rma.At(0), rma.Sum), w.Accumulate(buffer.Value(&one), 1, rma.At(0), rma.Sum), w.UnlockAll(j.ctx))
	}
	for r := range 2 {
		if got := rma.Slice[int64](wins[r].Memory())[0]; got != 3 {
			t.Errorf("rank %d has %d", r, got)
		}
	}
	if !wins[2].Unattended(0) || wins[2].Unattended(1) {
		t.Error("the rank that could not map the memory is in reach, or the other is not")
	}
	freeAll(j, wins)
	// Which are left, and not how many: what earlier tests have left to the garbage collector
	// may go meanwhile.
	awaitNoMoreKernelMemory(t, before)
}

// TestHostIsInReachWhereFramesAre has memory in the kernel where some rank uses frames, and
// all windows of the host fit.
func TestHostIsInReachWhereFramesAre(t *testing.T) {
	for _, test := range []struct {
		name   string
		hosts  []string
		frames bool
		sizes  []int
		info   rma.Info // of rank 1
		reach  []bool
	}{
		{"a rank is away", oneAway, false, []int{8, 0, 8}, nil, []bool{true, false, true}},
		{"all are here", []string{"a", "a"}, false, []int{8, 8}, nil, []bool{false, false}},
		{"all are here, and use frames", []string{"a", "a"}, true, []int{8, 8}, nil, []bool{true, true}},
		{"a large one", oneAway, false, []int{8, 65 << 20, 8}, nil, []bool{false, false, true}},
		{"refused", oneAway, false, []int{8, 8, 8}, rma.Info{"xdprma_express": "false"}, []bool{false, false, true}},
		{"checked", oneAway, false, []int{8, 8, 8}, rma.Info{"xdprma_check_conflicts": "true"}, []bool{false, false, false}},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := newLabJobAt(t, test.hosts, test.frames, rma.Limits{})
			wins := make([]*rma.Win, len(j.nodes))
			j.each(func(n *rma.Node) (err error) {
				info := rma.Info(nil)
				if n.Rank() == 1 {
					info = test.info
				}
				wins[n.Rank()], err = rma.Allocate(j.ctx, n.World(), test.sizes[n.Rank()], 8, info)
				return err
			})
			for r, want := range test.reach {
				if got := wins[r].Info()["xdprma_express"] == "true"; got != want {
					t.Errorf("rank %d in reach: %v", r, got)
				}
			}
			freeAll(j, wins)
		})
	}
}

// TestSharedIsInReachOfFrames accesses windows of AllocateShared by frames, which programs
// execute where the window begins at a multiple of 8 bytes of the memory.
func TestSharedIsInReachOfFrames(t *testing.T) {
	j := newLabJobAt(t, []string{"a", "a", "a"}, true, rma.Limits{})
	wins := sharedWindows(j, nil, 1, 16, 12, 8)
	if w := wins[0]; !w.Unattended(1) || w.Unattended(2) {
		t.Errorf("in reach: %v at 16 bytes, %v at 28", w.Unattended(1), w.Unattended(2))
	}
	w := wins[0]
	want, got := []byte("twelve bytes"), make([]byte, 8)
	j.must(w.Lock(j.ctx, rma.LockExclusive, 1, 0)) // which waits, for the memory can be loaded
	for before := executed(j.nodes[1]); executed(j.nodes[1]) < before+6; {
		j.must(w.Put(buffer.Of(want[:8]), 1, rma.At(0)), w.Put(buffer.Of(want[8:]), 1, rma.At(8)), w.Flush(j.ctx, 1))
		j.must(w.Get(buffer.Of(got), 1, rma.At(0)), w.Flush(j.ctx, 1))
		s, err := wins[2].SharedQuery(0)
		j.must(err)
		if all := s.Memory[:36]; !bytes.Equal(got, want[:8]) || string(all[16:28]) != string(want) || bytes.Count(all, []byte{0}) != 24 {
			t.Fatalf("got %q, the memory has %q", got, all)
		}
	}
	j.must(w.Unlock(j.ctx, 1))
	freeAll(j, wins)
}

// TestCallsUnderLockAllAreExecutedInXDP makes calls under a lock_all that several ranks
// hold, of which each target's program executes those that come by themselves.
func TestCallsUnderLockAllAreExecutedInXDP(t *testing.T) {
	j := newLabJobAt(t, oneAway, false, rma.Limits{})
	wins := j.windows(8, 8)
	awaitAll(j, wins[2], 1)
	for _, w := range wins {
		j.must(w.LockAll(j.ctx, 0))
	}
	before, sum := executed(j.nodes[1]), int64(0)
	var local sync.WaitGroup
	stop := make(chan struct{})
	local.Go(func() { // a rank of the host, at the same word
		for w, one, old := wins[0], int64(1), int64(0); ; {
			select {
			case <-stop:
				return
			default:
			}
			if err := first(w.FetchAndOp(buffer.Value(&one), buffer.Value(&old), 1, rma.At(0), rma.Sum), w.Flush(j.ctx, 1)); err != nil {
				t.Error(err)
				return
			}
			atomic.AddInt64(&sum, 1)
		}
	})
	one, old := int64(1), int64(0)
	for executed(j.nodes[1]) < before+100 {
		j.must(wins[2].FetchAndOp(buffer.Value(&one), buffer.Value(&old), 1, rma.At(0), rma.Sum), wins[2].Flush(j.ctx, 1))
		atomic.AddInt64(&sum, 1)
	}
	close(stop)
	local.Wait()
	for _, w := range wins {
		j.must(w.UnlockAll(j.ctx))
	}
	if got := rma.Slice[int64](wins[1].Memory())[0]; got != sum {
		t.Errorf("the sum is %d, want %d", got, sum)
	}
	freeAll(j, wins)
}
