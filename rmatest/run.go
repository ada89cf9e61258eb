package rmatest

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/xdprma/xdprma/rma"
)

// Run runs program as each of size ranks, and returns when all have ended. It is called by the
// test's goroutine, and ends the test when a rank has called FailNow, Fatal or Skip, has
// panicked, or has not ended in time. Tests may run several jobs, at once too.
func Run(t testing.TB, size int, program func(t *T, node *rma.Node), options ...Option) {
	t.Helper()
	j, err := newJob(t.Context(), size, options)
	if err != nil {
		t.Fatal(err)
	}
	j.heed(t)
	skipped := &skipping{}
	j.logger = func(rank int) *slog.Logger {
		return slog.New(&logs{slog.NewTextHandler(&log{&T{TB: t, job: j, rank: rank}}, &slog.HandlerOptions{Level: slog.LevelWarn})})
	}
	err = j.run(func(ctx context.Context, node *rma.Node) (err error) {
		rank := &T{TB: t, job: j, rank: node.Rank(), ctx: ctx, skipping: skipped}
		defer rank.unwind()
		defer func() { // before the cleanups, which may wait for the other ranks: a panic ends these
			if p := recover(); p != nil {
				j.fail(rank.rank, panicked(p))
				err = errTold
			}
		}()
		program(rank, node)
		return nil
	})
	for _, c := range j.conflicts {
		t.Error(c)
	}
	if (err != nil || t.Failed()) && j.settings.network.faulty() {
		t.Log(j.repeat())
	}
	switch {
	case errors.Is(err, errSkip):
		t.Skip(skipped.reason)
	case err != nil && errors.Is(err, errTold) && err.Error() == errTold.Error():
		t.FailNow()
	case err != nil:
		t.Fatal(err)
	}
}

// heed has the job end before the test's deadline, with enough time left for a report.
func (j *trial) heed(t testing.TB) {
	d, ok := t.(interface{ Deadline() (time.Time, bool) })
	if !ok {
		return
	}
	deadline, ok := d.Deadline()
	if !ok {
		return
	}
	left := time.Until(deadline)
	margin := min(left/5, 2*patience)
	if left -= margin; j.limit == 0 || left < j.limit {
		j.limit, j.grace = max(left, time.Nanosecond), min(margin/2, patience)
	}
}
