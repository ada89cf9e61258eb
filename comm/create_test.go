package comm_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/mpierr"
)

// TestSplitHalf has rank 2 vanish when rank 1 has heard of all that a new communicator
// needs, and rank 0 has not: no rank waits in the new one for those that do not have it.
func TestSplitHalf(t *testing.T) {
	t.Parallel() // the most of it is waiting
	ctx, jobs := join(t, 3, soon)
	near := make(chan bool)
	// silence waits until a rank has sent the others what it can, and has it vanish.
	silence := func(j *comm.Job) {
		for {
			e := j.Poller().Lock()
			u := e.Usage()
			j.Poller().UnlockQuiet()
			if u.Receives == 1 && u.FreeSlots == u.Slots {
				break
			}
			runtime.Gosched()
		}
		_ = j.Poller().Close()
	}
	errs := each(jobs, func(j *comm.Job) error {
		var d *comm.Comm
		var err error
		switch c := j.World(); j.Rank() {
		case 0:
			d, err = c.SplitInSteps(ctx, func() { <-near; silence(jobs[2]) })
		case 1:
			d, err = c.Split(ctx, 0, 0)
		default:
			_, err = c.SplitInSteps(ctx, func() { close(near) })
			return err
		}
		if err == nil {
			err = errors.Join(errHasIt, d.Barrier(ctx))
		}
		return err
	})
	if !errors.Is(errs[0], mpierr.ProcFailed) || errors.Is(errs[0], errHasIt) {
		t.Errorf("rank 0: got %v, want class process failed and no communicator", errs[0])
	}
	if !errors.Is(errs[1], mpierr.ProcFailed) || !errors.Is(errs[1], errHasIt) {
		t.Errorf("rank 1: got %v, want a communicator whose barrier fails with class process failed", errs[1])
	}
}

var errHasIt = errors.New("it has the communicator")
