package comm_test

import (
	"context"
	"errors"
	"testing"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/launch/job"
	"github.com/xdprma/xdprma/mpierr"
)

// joinAs joins as a rank, until the test ends.
func joinAs(ctx context.Context, t *testing.T, place bootstrap.Config) *comm.Job {
	t.Helper()
	j, err := comm.Join(ctx, job.Config{Place: place, Limits: soon})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// receiveAny receives from any rank in the background.
func receiveAny(ctx context.Context, c *comm.Comm) (result chan error) {
	result = make(chan error, 1)
	go func() {
		_, err := comm.Recv(ctx, c, make([]byte, 1), comm.AnySource, 1)
		result <- err
	}()
	return result
}

// awaitSought waits until what a rank has been asked for has been looked for: a message of
// its own comes after.
func awaitSought(ctx context.Context, t *testing.T, j *comm.Job) {
	t.Helper()
	if err := comm.Send(ctx, j.World(), []byte{1}, j.Rank(), 9); err != nil {
		t.Fatal(err)
	}
	if _, err := comm.Recv(ctx, j.World(), make([]byte, 1), j.Rank(), 9); err != nil {
		t.Fatal(err)
	}
}

// A rank that has left before anybody met it has not failed: a receive from any rank goes on
// without it, and a later process of the rank is let in.
func TestRankThatLeftUnmet(t *testing.T) {
	ctx, places, _ := serve(t, 3)
	zero, one := joinAs(ctx, t, places[0]), joinAs(ctx, t, places[1])
	if err := joinAs(ctx, t, places[2]).Close(); err != nil {
		t.Fatal(err)
	}
	received := receiveAny(ctx, zero.World())
	if err := comm.Send(ctx, zero.World(), []byte{1}, 2, 1); !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("to the one that has left: %v", err)
	}
	if n := zero.World().Failed().Size(); n != 0 {
		t.Errorf("%d ranks count as failed", n)
	}
	if err := comm.Send(ctx, one.World(), []byte{1}, 0, 1); err != nil {
		t.Error(err)
	}
	if err := <-received; err != nil {
		t.Errorf("from any rank: %v", err)
	}
	again := joinAs(ctx, t, places[2])
	received = receiveAny(ctx, zero.World())
	if err := comm.Send(ctx, again.World(), []byte{1}, 0, 1); err != nil {
		t.Errorf("of the later process: %v", err)
	}
	if err := <-received; err != nil {
		t.Error(err)
	}
	if err := comm.Send(ctx, zero.World(), []byte{1}, 2, 1); err != nil {
		t.Errorf("to the later process: %v", err)
	}
}

// More ranks are absent than the rendezvous takes questions at a time. Ranks that join are
// found all the same, and none counts as failed.
func TestManyAbsentRanks(t *testing.T) {
	const size = 1200
	ctx, places, _ := serve(t, size)
	zero := joinAs(ctx, t, places[0])
	received := receiveAny(ctx, zero.World())
	testenv.Await(t, "the receive looks for all ranks", func() bool { // a receive that waits has them sought
		awaitSought(ctx, t, zero)
		e := zero.Poller().Lock()
		defer zero.Poller().UnlockQuiet()
		return e.Session(size-1) != nil
	})
	late := joinAs(ctx, t, places[size-1])
	if err := comm.Send(ctx, zero.World(), []byte{1}, size-1, 1); err != nil {
		t.Errorf("to the one that has joined: %v", err)
	}
	if err := comm.Send(ctx, late.World(), []byte{1}, 0, 1); err != nil {
		t.Errorf("of the one that has joined: %v", err)
	}
	if err := <-received; err != nil {
		t.Errorf("from any rank: %v", err)
	}
	if n := zero.World().Failed().Size(); n != 0 {
		t.Errorf("%d ranks count as failed", n)
	}
}

// The rendezvous ends while a rank waits for a message of any rank, of which it has met one.
func TestAnySourceWithoutTheRendezvous(t *testing.T) {
	ctx, places, server := serve(t, 3)
	jobs := []*comm.Job{joinAs(ctx, t, places[0]), joinAs(ctx, t, places[1]), joinAs(ctx, t, places[2])}
	if err := errors.Join(each(jobs[:2], func(j *comm.Job) error {
		if j.Rank() == 0 {
			return comm.Send(ctx, j.World(), []byte{1}, 1, 1)
		}
		_, err := comm.Recv(ctx, j.World(), make([]byte, 1), 0, 1)
		return err
	})...); err != nil {
		t.Fatal(err)
	}
	_ = server.Close()
	received := receiveAny(ctx, jobs[0].World())
	if err := comm.Send(ctx, jobs[0].World(), []byte{1}, 2, 1); !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("to a rank that cannot be asked for: %v", err)
	}
	if err := comm.Send(ctx, jobs[1].World(), []byte{1}, 0, 1); err != nil {
		t.Error(err)
	}
	if err := <-received; err != nil {
		t.Errorf("from any rank: %v", err)
	}
}

// A call whose context has ended takes what is there, and leaves nothing behind.
func TestEndedContextTakesWhatIsThere(t *testing.T) {
	ctx, jobs := join(t, 2, soon)
	a, b := jobs[0].World(), jobs[1].World()
	ended, end := context.WithCancel(ctx)
	end()
	for range 2 {
		if err := comm.Send(ctx, a, []byte{1}, 1, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Probe(ctx, 0, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Probe(ended, 0, 1); err != nil {
			t.Errorf("probe: %v", err)
		}
		if _, err := comm.Recv(ended, b, make([]byte, 1), 0, 1); err != nil {
			t.Errorf("recv: %v", err)
		}
		if _, err := comm.Recv(ended, b, make([]byte, 1), 0, 1); !errors.Is(err, mpierr.Timeout) {
			t.Errorf("recv of nothing: %v", err)
		}
	}
}
