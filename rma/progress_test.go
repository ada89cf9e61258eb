package rma_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/rma"
)

// TestProgressWithoutCalls issues operations and then makes no further call: they
// reach the target nevertheless. Silence would count as death only after an hour,
// so that no sign of life helps them along.
func TestProgressWithoutCalls(t *testing.T) {
	j := newJob(t, 2, rma.Limits{DeadAfter: time.Hour})
	wins := j.windows(24, 8)
	memory := rma.Slice[int64](wins[1].Memory())
	seen := func(i int, want int64) error {
		for j.ctx.Err() == nil {
			if atomic.LoadInt64(&memory[i]) == want {
				return nil
			}
			time.Sleep(100 * time.Microsecond)
		}
		return fmt.Errorf("element %d never became %d", i, want)
	}
	w, v := wins[0], int64(0)
	j.must(w.LockAll(j.ctx, 0))
	for v = range 50 {
		j.must(w.Put(buffer.Value(&v), 1, rma.At(0)), seen(0, v))
		j.must(w.Accumulate(buffer.Value(&v), 1, rma.At(1), rma.Replace), seen(1, v))
	}
	j.must(w.UnlockAll(j.ctx), w.Lock(j.ctx, rma.LockExclusive, 1, 0), w.Put(buffer.Value(&v), 1, rma.At(2)), seen(2, v), w.Unlock(j.ctx, 1))
}
