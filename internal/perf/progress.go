package perf

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xdprma/xdprma/rma"
)

// progress makes the test of who serves a target that does not call the library
// while busy of its goroutines compute. Between two operations of the origin lies
// pause, counted from start to start.
func progress(busy int, pause time.Duration) func(*rank, Point) error {
	return func(r *rank, p Point) error {
		if r.id != 0 {
			r.compute(busy)
			return nil
		}
		return withLock(r, func() error {
			step := fetchAndOpOnce(r, p)
			if err := warmUp(step); err != nil {
				return err
			}
			run := func() error { return r.timed(step, 1) }
			if pause > 0 {
				run = func() error { return r.paced(step, pause) }
			}
			if err := run(); err != nil {
				return err
			}
			return r.stop()
		})
	}
}

// paced is timed with a pause in which the origin spins outside the library.
func (r *rank) paced(step pass, pause time.Duration) error {
	limit, most := r.duration, mostPasses
	if r.plan.Iterations > 0 {
		limit, most = 1<<62, r.plan.Iterations
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	n, end := 0, time.Duration(0)
	for ; n < most && end < limit; n++ {
		begin := time.Since(start)
		for next := end + pause; begin < next; begin = time.Since(start) {
			continue
		}
		if err := step(); err != nil {
			return err
		}
		end = time.Since(start)
		r.histogram.record(end - begin)
	}
	runtime.ReadMemStats(&after)
	r.sample.Passes, r.sample.Ops, r.sample.Elapsed = uint64(n), uint64(n), end
	r.sample.Allocs = after.Mallocs - before.Mallocs
	return nil
}

// stop ends the target's computing.
func (r *rank) stop() error {
	r.words.one = 1
	if err := r.win.Put(rma.Value(&r.words.one), r.peer(), rma.At(int64(r.stopAt))); err != nil {
		return err
	}
	return r.flush()
}

// lookPause is how often a target looks whether it is to go on.
const lookPause = 2 * time.Millisecond

// compute keeps busy goroutines computing until the origin sets the word at the
// window's end. It calls nothing of the library.
func (r *rank) compute(busy int) {
	var over atomic.Bool
	var workers sync.WaitGroup
	for range busy {
		workers.Go(func() {
			for x := uint64(1); !over.Load(); {
				for range 1000 {
					x = x*6364136223846793005 + 1442695040888963407
				}
				spent.Store(x)
			}
		})
	}
	word := &rma.Slice[int64](r.win.Memory()[r.stopAt:])[0]
	for atomic.LoadInt64(word) == 0 {
		time.Sleep(lookPause)
	}
	over.Store(true)
	workers.Wait()
	atomic.StoreInt64(word, 0)
}

// spent keeps the compiler from leaving the computing out.
var spent atomic.Uint64
