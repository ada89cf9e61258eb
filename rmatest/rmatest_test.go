package rmatest_test

import (
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

// count has each rank add one to a counter of its own and to that of the next rank.
func count(t *rmatest.T, node *rma.Node) {
	ctx := t.Context()
	win, err := rma.Allocate(ctx, node.World(), 8, 8, nil)
	t.Must(err)
	t.Must(win.LockAll(ctx, 0))
	for _, target := range []int{node.Rank(), (node.Rank() + 1) % node.Size()} {
		one := int64(1)
		t.Must(win.Accumulate(buffer.Value(&one), target, rma.At(0), rma.Sum))
	}
	t.Must(win.UnlockAll(ctx))
	t.Must(node.World().Barrier(ctx))
	if got := rma.Slice[int64](win.Memory())[0]; got != 2 {
		t.Errorf("the counter is %d, want 2", got)
	}
	t.Must(win.Free(ctx))
}

func TestRanks(t *testing.T) {
	for _, size := range []int{1, 2, 4, 64} {
		rmatest.Run(t, size, count)
	}
}

func TestHosts(t *testing.T) {
	rmatest.Run(t, 4, count, rmatest.Hosts(2), rmatest.Unchecked())
}

func BenchmarkFourRanks(b *testing.B) {
	for b.Loop() {
		rmatest.Run(b, 4, count)
	}
}

func TestFaults(t *testing.T) {
	rmatest.Run(t, 4, count, &rmatest.Network{Loss: 0.1, Duplication: 0.1, Reordering: 0.2, Delay: 100 * time.Microsecond})
}

// A job opens files for its rendezvous, and for memory that ranks share, and closes them.
func TestNoFileIsLeft(t *testing.T) {
	rmatest.Run(t, 4, count) // the runtime's poller has files of its own from now on
	before := testenv.OpenFiles(t)
	rmatest.Run(t, 4, count, rmatest.Hosts(1), rmatest.Unchecked())
	if after := testenv.OpenFiles(t); after != before {
		t.Errorf("%d files are open, and %d were", after, before)
	}
}

// Ranks of one host load and store each other's memory.
func TestSharedMemory(t *testing.T) {
	rmatest.Run(t, 4, func(t *rmatest.T, node *rma.Node) {
		ctx := t.Context()
		host, err := node.World().SplitHost(ctx, 0)
		t.Must(err)
		if host.Size() != 2 {
			t.Fatalf("%d ranks share the host of rank %d, want 2", host.Size(), node.Rank())
		}
		win, err := rma.AllocateShared(ctx, host, 8, 8, nil)
		t.Must(err)
		rma.Slice[int64](win.Memory())[0] = int64(node.Rank())
		t.Must(win.Fence(ctx, 0))
		other, err := win.SharedQuery(1 - host.Rank())
		t.Must(err)
		if got := rma.Slice[int64](other.Memory)[0]; got != int64(node.Rank()^1) {
			t.Errorf("found %d", got)
		}
		t.Must(win.Fence(ctx, 0))
		t.Must(win.Free(ctx))
	}, rmatest.Hosts(2))
}
