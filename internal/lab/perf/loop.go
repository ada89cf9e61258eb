package perf

import (
	"runtime"
	"time"

	"github.com/xdprma/xdprma/rma"
)

// Bounds of a warm-up and of a timed loop.
const (
	warmUpTime   = 40 * time.Millisecond
	warmUpLeast  = 4
	warmUpMost   = 2000
	warmUpPasses = 20 // of a test in which all ranks take part
	mostPasses   = 50_000_000
)

// pass is one turn of a timed loop: an operation or a window of them, completed.
type pass func() error

// originOnly makes a test out of passes of rank 0 inside an epoch with a shared
// lock. The target waits in a barrier.
func originOnly(make func(*rank, Point) pass) func(*rank, Point) error {
	return unlocked(func(r *rank, p Point) pass { return make(r, p) }, withLock)
}

// unlocked is originOnly without the epoch, or within what around does.
func unlocked(make func(*rank, Point) pass, around ...func(*rank, func() error) error) func(*rank, Point) error {
	return func(r *rank, p Point) error {
		if r.id != 0 {
			return nil
		}
		work := func() error {
			step := make(r, p)
			if err := warmUp(step); err != nil {
				return err
			}
			return r.timed(step, uint64(max(p.Window, 1)))
		}
		for _, f := range around {
			inner := work
			work = func() error { return f(r, inner) }
		}
		return work()
	}
}

// withLock calls f within an epoch that a shared lock on the peer gives.
func withLock(r *rank, f func() error) error {
	if err := r.win.Lock(r.ctx, rma.LockShared, r.peer(), 0); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return r.win.Unlock(r.ctx, r.peer())
}

// peer is the other one of two ranks.
func (r *rank) peer() int { return (r.id + 1) % r.size }

func warmUp(step pass) error {
	start := time.Now()
	for i := 0; i < warmUpMost && (i < warmUpLeast || time.Since(start) < warmUpTime); i++ {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// timed runs the timed loop for as long as the plan says. Each pass is ops operations.
func (r *rank) timed(step pass, ops uint64) error {
	limit, most := r.duration, mostPasses
	if r.plan.Iterations > 0 {
		limit, most = 1<<62, r.plan.Iterations
	}
	return r.loop(step, ops, limit, most)
}

// loop runs step until limit has passed, at most most times, and records each
// pass's latency. It allocates nothing itself.
func (r *rank) loop(step pass, ops uint64, limit time.Duration, most int) error {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	last, n := time.Duration(0), 0
	for n < most && last < limit {
		if err := step(); err != nil {
			return err
		}
		now := time.Since(start)
		r.histogram.record(now - last)
		last = now
		n++
	}
	runtime.ReadMemStats(&after)
	r.sample.Passes, r.sample.Ops, r.sample.Elapsed = uint64(n), uint64(n)*ops, last
	r.sample.Allocs = after.Mallocs - before.Mallocs
	return nil
}
