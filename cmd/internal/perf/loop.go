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
	inner := unlocked(make)
	return func(r *rank, p Point) error {
		if r.id != 0 {
			return nil
		}
		return withLock(r, func() error { return inner(r, p) })
	}
}

// unlocked is originOnly without the epoch.
func unlocked(make func(*rank, Point) pass) func(*rank, Point) error {
	return func(r *rank, p Point) error {
		if r.id != 0 {
			return nil
		}
		step := make(r, p)
		if err := warmUp(step); err != nil {
			return err
		}
		return r.timed(step, uint64(max(p.Window, 1)), 0, r.record)
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
func (r *rank) timed(step pass, ops uint64, pause time.Duration, record func(begin, end time.Duration)) error {
	limit, most := r.duration, mostPasses
	if r.plan.Iterations > 0 {
		limit, most = 1<<62, r.plan.Iterations
	}
	return r.loop(step, ops, limit, most, pause, record)
}

// record takes in the latency of a pass.
func (r *rank) record(begin, end time.Duration) { r.histogram.record(end - begin) }

// loop runs step until limit has passed, at most most times, and records when each pass
// began and ended. A pass begins a pause after the one before has ended; meanwhile the origin
// spins outside the library. loop allocates nothing itself.
func (r *rank) loop(step pass, ops uint64, limit time.Duration, most int, pause time.Duration, record func(begin, end time.Duration)) error {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	n, end := 0, time.Duration(0)
	for ; n < most && end < limit; n++ {
		begin := end
		for begin < end+pause {
			begin = time.Since(start)
		}
		if err := step(); err != nil {
			return err
		}
		end = time.Since(start)
		record(begin, end)
	}
	runtime.ReadMemStats(&after)
	r.sample.Passes, r.sample.Ops, r.sample.Elapsed = uint64(n), uint64(n)*ops, end
	r.sample.Allocs = after.Mallocs - before.Mallocs
	return nil
}
