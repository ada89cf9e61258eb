package rma_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/lab/testjob"
	"github.com/xdprma/xdprma/rma"
)

// TestManyRanksPutToAll has each of many ranks put to all others, over a session each, and pass
// a barrier.
func TestManyRanksPutToAll(t *testing.T) {
	once(t)
	ranks := testenv.Ranks(64)
	var limits rma.Limits
	if os.Getenv(testjob.EnvProtected) != "" { // each of the handshakes takes a millisecond of a processor, and many times that under the race detector
		limits.DeadAfter = time.Minute
	}
	j := newJob(t, ranks, limits)
	wins := j.windows(8*ranks, 8)
	j.each(func(n *rma.Node) error {
		w, own := wins[n.Rank()], uint64(n.Rank()+1)
		if err := w.LockAll(j.ctx); err != nil {
			return err
		}
		for i := range ranks {
			if err := w.Put(buffer.Value(&own), (n.Rank()+i)%ranks, rma.At(n.Rank())); err != nil {
				return err
			}
		}
		if err := w.UnlockAll(j.ctx); err != nil {
			return err
		}
		if err := n.World().Barrier(j.ctx); err != nil {
			return err
		}
		for from := range ranks {
			if got := binary.NativeEndian.Uint64(w.Memory()[8*from:]); got != uint64(from+1) {
				return fmt.Errorf("rank %d has put %d at rank %d, not %d", from, got, n.Rank(), from+1)
			}
		}
		return nil
	})
}
