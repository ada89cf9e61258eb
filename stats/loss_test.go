package stats_test

import (
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
	"github.com/xdprma/xdprma/stats"
)

// TestWhatTellsOfLoss holds docs/troubleshooting.md to the counters that it names, for a rank that
// has one put on the way at a time, and for one that has many.
func TestWhatTellsOfLoss(t *testing.T) {
	for _, loss := range []float64{0, 0.1} {
		for _, atOnce := range []int{1, 100} {
			t.Run(fmt.Sprintf("loss %v, %d at once", loss, atOnce), func(t *testing.T) {
				counted := put(t, 300/atOnce, atOnce, &rmatest.Network{Seed: 1, Loss: loss})
				sender, receiver := counted[0], counted[1]
				t.Logf("sender %+v, receiver %+v", sender, receiver)
				again := sender.Resent + sender.Repeated
				if lossy := again > sender.Sent/20; lossy != (loss > 0) {
					t.Errorf("%d frames were sent again, of %d", again, sender.Sent)
				}
				if loss > 0 && atOnce == 1 && (receiver.Duplicates == 0 || sender.Lost > again/10) {
					t.Error("nothing came twice, or later acknowledgements told of losses")
				}
				if loss > 0 && atOnce > 1 && sender.Lost == 0 {
					t.Error("no acknowledgement told of a loss")
				}
			})
		}
	}
}

// put has rank 0 put into rank 1's memory, with a flush for so many at once, and returns what both have counted.
func put(t *testing.T, times, atOnce int, network *rmatest.Network) (counted [2]stats.Link) {
	rmatest.Run(t, 2, func(t *rmatest.T, node *rma.Node) {
		ctx := t.Context()
		w, err := rma.AllocateOf[[150]int64](ctx, node.World(), atOnce)
		t.Must(err)
		if node.Rank() == 0 {
			t.Must(w.LockAll(ctx))
			for range times {
				for i := range atOnce {
					t.Must(w.PutValue([150]int64{}, 1, rma.At(i)))
				}
				t.Must(w.Flush(ctx, 1))
			}
			t.Must(w.UnlockAll(ctx))
		}
		t.Must(node.World().Barrier(ctx))
		counted[node.Rank()] = node.Stats().Link
		t.Must(w.Free(ctx))
	}, network, rmatest.Unchecked())
	return counted
}
