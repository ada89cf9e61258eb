package rma_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
)

// awaitNoMoreKernelMemory waits until this process has only those maps and mappings of BPF that
// it had before.
func awaitNoMoreKernelMemory(t *testing.T, before map[string]bool) {
	t.Helper()
	testenv.Await(t, "the maps and mappings of BPF of the windows to go", func() bool {
		left := kernelMemory(t)
		maps.DeleteFunc(left, func(one string, _ bool) bool { return before[one] })
		return len(left) == 0
	})
}

// isMapped reports whether this process maps n bytes from an address on.
func isMapped(t *testing.T, at, n int64) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) { // by address
		var from, to int64
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			continue
		}
		if from <= at && at < to {
			if n -= to - at; n <= 0 {
				return true
			}
			at = to
		}
	}
	return false
}

// TestDupMemoryGoesWithTheLast frees windows and duplicates in all orders. The memory is mapped
// until the last is freed, and not after it; so are the locks, and no file stays open.
func TestDupMemoryGoesWithTheLast(t *testing.T) {
	const size = 64 << 20 // so much that nobody else maps that place as a whole
	dupGrounds(t, func(t *testing.T, j *job) {
		files := testenv.OpenFiles(t)
		for _, order := range dupOrders {
			wins := j.windows(size, 8)
			all := [][]*rma.Win{wins, dupAll(j, wins), nil}
			all[2] = dupAll(j, all[1])
			where := rma.Address(buffer.Of(wins[0].Memory()))
			for i, k := range order {
				if !isMapped(t, where, size) {
					t.Fatalf("order %v: the memory is gone after %d windows", order, i)
				}
				freeAll(j, all[k])
			}
			if isMapped(t, where, size) {
				t.Errorf("order %v: the memory is there after all windows were freed", order)
			}
		}
		if n := testenv.OpenFiles(t); n != files {
			t.Errorf("%d files are open, %d before", n, files)
		}
	})
}

// TestDupMapsAreGivenBack makes many duplicates of a window of which ranks map the memory.
func TestDupMapsAreGivenBack(t *testing.T) {
	j := newJobAt(t, []string{"a", "a", "a"}, rma.Limits{})
	shared := func() int {
		text, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "memfd:xdprma")
	}
	before, files := shared(), testenv.OpenFiles(t)
	wins := j.windows(64, 8)
	with := shared()
	for range 20 {
		freeAll(j, dupAll(j, wins))
	}
	if n := shared(); n != with {
		t.Errorf("%d mappings after the duplicates were freed, %d before", n, with)
	}
	last := dupAll(j, wins)
	freeAll(j, wins)
	freeAll(j, last)
	if n := shared(); n != before {
		t.Errorf("%d mappings, %d before", n, before)
	}
	if n := testenv.OpenFiles(t); n != files {
		t.Errorf("%d files are open, %d before", n, files)
	}
}

// TestDupKeepsResults has results of another window's calls in memory of a window. They arrive
// after that was freed, as long as a duplicate has the memory, and are given up with the last.
func TestDupKeepsResults(t *testing.T) {
	j := newJobAt(t, []string{"", ""}, rma.Limits{})
	wins := j.windows(4096, 8)
	dups := dupAll(j, wins)
	from := j.windows(8, 8)
	rma.Slice[int64](from[1].Memory())[0] = 5
	into := rma.Slice[int64](wins[0].Memory())
	release := j.nodes[1].Hold()
	j.must(from[0].LockAll(j.ctx, 0), from[0].Get(buffer.Of(into[:1]), 1, rma.At(0)))
	j.freeHere(wins[:1])
	release()
	j.must(from[0].Flush(j.ctx, 1))
	if into[0] != 5 {
		t.Errorf("got %d", into[0])
	}
	release = j.nodes[1].Hold()
	j.must(from[0].Get(buffer.Of(into[:1]), 1, rma.At(0)))
	j.freeHere(dups[:1])
	release()
	if err := from[0].Flush(j.ctx, 1); rma.ClassOf(err) != rma.ErrWin {
		t.Errorf("a result in memory that is gone: %v", err)
	}
	_ = from[0].UnlockAll(j.ctx)
	j.freeHere(slices.Concat(wins[1:], dups[1:]))
	freeAll(j, from)
}
