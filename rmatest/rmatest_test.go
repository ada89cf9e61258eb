package rmatest_test

import (
	"testing"
	"time"

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
		t.Must(win.Accumulate(rma.Value(&one), target, rma.At(0), rma.Sum))
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
