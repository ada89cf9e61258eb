package comm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/lab/testjob"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/launch/job"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

// soon is when a silent rank counts as dead in these tests. A few frames are
// enough for them.
var soon = userspace.Limits{DeadAfter: 2 * time.Second, TxFrames: 64, RxFrames: 64}

// serve returns the places of a job's ranks and the server of their rendezvous, which end
// with the test, and a context for what the test waits for.
func serve(t testing.TB, size int) (context.Context, []bootstrap.Config, *bootstrap.Server) {
	t.Helper()
	places, server, err := testjob.Serve(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Limit)
	t.Cleanup(cancel)
	return ctx, places, server
}

// join returns the ranks of a job, all in this process.
func join(t testing.TB, size int, limits userspace.Limits) (context.Context, []*comm.Job) {
	t.Helper()
	ctx, places, _ := serve(t, size)
	jobs := make([]*comm.Job, size)
	t.Cleanup(func() {
		each(jobs, func(j *comm.Job) error {
			if j == nil {
				return nil
			}
			return j.Close()
		})
	})
	for rank := range size {
		j, err := comm.Join(ctx, job.Config{Place: places[rank], Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		jobs[rank] = j
	}
	return ctx, jobs
}

// each runs f for all ranks at once and returns what each returned.
func each[T any](ranks []T, f func(T) error) []error {
	errs := make([]error, len(ranks))
	var all sync.WaitGroup
	for i, r := range ranks {
		all.Go(func() { errs[i] = f(r) })
	}
	all.Wait()
	return errs
}

// text is n bytes that depend on who sends them to whom.
func text(from, to, n int) []byte {
	b := make([]byte, n)
	testenv.Fill(b, uint32(from*7919+to*104729))
	return b
}

func TestCollectives(t *testing.T) {
	for _, size := range []int{1, 2, 3, 4, 7} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			// No sign of life helps a message along that was left lying.
			ctx, jobs := join(t, size, userspace.Limits{TxFrames: 64, DeadAfter: time.Hour})
			for _, length := range []int{0, 1, 1024, 1025, 5000} {
				block := func(rank int) []byte { return bytes.Repeat([]byte{byte(rank + 1)}, length) }
				errs := each(jobs, func(j *comm.Job) error {
					w := j.World()
					if w.Rank() != j.Rank() || w.Size() != size || w.WorldRank(size-1) != size-1 {
						return fmt.Errorf("rank %d of %d", w.Rank(), w.Size())
					}
					all, err := w.AllgatherBytes(ctx, block(j.Rank()))
					if err != nil {
						return err
					}
					for r, b := range all {
						if !bytes.Equal(b, block(r)) {
							return fmt.Errorf("block %d of %d bytes is wrong", r, len(b))
						}
					}
					for root := range size {
						var mine []byte
						if root == j.Rank() {
							mine = block(root)
						}
						got, err := w.BcastBytes(ctx, mine, root)
						if err != nil || !bytes.Equal(got, block(root)) {
							return fmt.Errorf("broadcast of %d: %d bytes, %w", root, len(got), err)
						}
					}
					return w.Barrier(ctx)
				})
				if err := errors.Join(errs...); err != nil {
					t.Fatalf("%d bytes: %v", length, err)
				}
			}
		})
	}
}

// TestBarrierWaits enters a barrier at all ranks but one, and looks that none has
// passed before the last one enters.
func TestBarrierWaits(t *testing.T) {
	const size = 4
	ctx, jobs := join(t, size, userspace.Limits{})
	for last := range size {
		passed := make(chan error, size)
		for _, j := range jobs {
			if j.Rank() != last {
				go func() { passed <- j.World().Barrier(ctx) }()
			}
		}
		select {
		case err := <-passed:
			t.Fatalf("a rank passed the barrier before rank %d entered it: %v", last, err)
		case <-time.After(5 * time.Millisecond):
		}
		if err := jobs[last].World().Barrier(ctx); err != nil {
			t.Fatal(err)
		}
		for range size - 1 {
			if err := <-passed; err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestDeadMember lets a rank vanish. The barrier fails at all others, also at
// those that never exchange a message with the dead one.
func TestDeadMember(t *testing.T) {
	t.Parallel() // the most of it is waiting
	for _, size := range []int{2, 4, 16} {
		ctx, jobs := join(t, size, soon)
		if err := errors.Join(each(jobs, func(j *comm.Job) error { return j.World().Barrier(ctx) })...); err != nil {
			t.Fatal(err)
		}
		dead := size / 2
		_ = jobs[dead].Poller().Close()
		for rank, err := range each(jobs, func(j *comm.Job) error {
			if j.Rank() == dead {
				return mpierr.ProcFailed
			}
			return j.World().Barrier(ctx)
		}) {
			if !errors.Is(err, mpierr.ProcFailed) {
				t.Errorf("%d ranks: barrier at rank %d: got %v, want class process failed", size, rank, err)
			}
		}
	}
}

// TestLeftMember closes a rank in good order. A barrier cannot succeed without it.
func TestLeftMember(t *testing.T) {
	ctx, jobs := join(t, 3, userspace.Limits{})
	if err := errors.Join(each(jobs, func(j *comm.Job) error { return j.World().Barrier(ctx) })...); err != nil {
		t.Fatal(err)
	}
	if err := jobs[2].Close(); err != nil {
		t.Fatal(err)
	}
	for rank, err := range each(jobs[:2], func(j *comm.Job) error { return j.World().Barrier(ctx) }) {
		if !errors.Is(err, mpierr.ProcFailed) {
			t.Errorf("rank %d: got %v, want class process failed", rank, err)
		}
	}
}

// TestGivenUp ends the context of one member inside a barrier that another never
// enters. The member learns why, the others that one of them gave up: in that
// collective, or in the next if they were late.
func TestGivenUp(t *testing.T) {
	for _, size := range []int{2, 5, 16} {
		for _, met := range []bool{false, true} {
			ctx, jobs := join(t, size, userspace.Limits{TxFrames: 64, RxFrames: 64})
			if met { // the ranks have sessions with each other before
				if err := errors.Join(each(jobs, func(j *comm.Job) error { return j.World().Barrier(ctx) })...); err != nil {
					t.Fatal(err)
				}
			}
			short, cancel := context.WithCancel(ctx)
			gaveUp := make(chan bool)
			for rank, err := range each(jobs, func(j *comm.Job) error {
				switch j.Rank() {
				case 1:
					time.AfterFunc(5*time.Millisecond, cancel)
					err := j.World().Barrier(short)
					close(gaveUp)
					return err
				case 0:
					<-gaveUp
				}
				// The one that gave up may have done its part before.
				if err := j.World().Barrier(ctx); err != nil {
					return err
				}
				return j.World().Barrier(ctx)
			}) {
				if rank == 1 && !errors.Is(err, context.Canceled) {
					t.Errorf("%d ranks: rank 1 got %v, want cancelled", size, err)
				}
				if rank != 1 && !errors.Is(err, mpierr.ProcFailed) {
					t.Errorf("%d ranks: rank %d got %v, want class process failed", size, rank, err)
				}
			}
			if err := jobs[1].World().Barrier(ctx); !errors.Is(err, mpierr.ProcFailed) {
				t.Errorf("another barrier after it: got %v, want class process failed", err)
			}
		}
	}
}

func TestTimedOut(t *testing.T) {
	ctx, jobs := join(t, 2, userspace.Limits{})
	short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	_, err := jobs[0].World().AllgatherBytes(short, []byte{1})
	if !errors.Is(err, mpierr.Timeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want class timed out", err)
	}
}

// TestBlocksDiffer passes blocks of different lengths, which is a mistake: it
// fails everywhere.
func TestBlocksDiffer(t *testing.T) {
	ctx, jobs := join(t, 4, userspace.Limits{})
	for rank, err := range each(jobs, func(j *comm.Job) error {
		_, err := j.World().AllgatherBytes(ctx, make([]byte, 4+j.Rank()/3))
		return err
	}) {
		if !errors.Is(err, mpierr.Count) && !errors.Is(err, mpierr.ProcFailed) {
			t.Errorf("rank %d: got %v", rank, err)
		}
	}
}

func TestBroadcastRoot(t *testing.T) {
	ctx, jobs := join(t, 1, userspace.Limits{})
	for _, root := range []int{-1, 1} {
		c, err := jobs[0].World().Dup(ctx) // it breaks
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.BcastBytes(ctx, nil, root); !errors.Is(err, mpierr.Rank) {
			t.Errorf("root %d: got %v, want class rank", root, err)
		}
	}
}

func TestJoinRefused(t *testing.T) {
	place := bootstrap.Config{Size: 1}
	for _, o := range []job.Config{
		{},
		{Place: bootstrap.Config{Rank: 1, Size: 1}},
		{Place: bootstrap.Config{Rank: -1, Size: 1}},
		{Place: bootstrap.Config{Size: 2}},
		{Place: place, Limits: userspace.Limits{TxFrames: 31}},
		{Place: place, Limits: userspace.Limits{RxFrames: -1}},
		{Place: place, Limits: userspace.Limits{DeadAfter: -1}},
	} {
		j, err := comm.Join(context.Background(), o)
		if !errors.Is(err, mpierr.Arg) {
			t.Errorf("%+v: got %v, want class argument", o, err)
		}
		if j != nil {
			_ = j.Close()
		}
	}
}

// TestBarePlaces joins ranks that know nothing of the network but the rendezvous.
func TestBarePlaces(t *testing.T) {
	ctx, places, _ := serve(t, 3)
	for rank, err := range each(places, func(p bootstrap.Config) error {
		p.Transport, p.Address = "", netip.Addr{}
		j, err := comm.Join(ctx, job.Config{Place: p})
		if err != nil {
			return err
		}
		return errors.Join(j.World().Barrier(ctx), j.Close())
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// TestCloseTogether closes a job from many goroutines: none returns before it is closed.
func TestCloseTogether(t *testing.T) {
	ctx, jobs := join(t, 2, userspace.Limits{})
	closers := make([]int, 8)
	if err := errors.Join(each(closers, func(int) error {
		if err := jobs[0].Close(); err != nil {
			return err
		}
		if _, err := jobs[0].Poller().Path(ctx, netip.MustParseAddrPort("127.0.0.1:9")); !errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("the device is open after Close: %v", err)
		}
		return nil
	})...); err != nil {
		t.Fatal(err)
	}
}

func TestClosedJob(t *testing.T) {
	ctx, jobs := join(t, 2, userspace.Limits{})
	waiting := make(chan error)
	go func() { waiting <- jobs[0].World().Barrier(ctx) }()
	for range 2 {
		if err := jobs[0].Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-waiting; !errors.Is(err, mpierr.Closed) {
		t.Errorf("a barrier that waited: got %v, want class closed", err)
	}
	if err := jobs[0].World().Barrier(ctx); !errors.Is(err, mpierr.Closed) {
		t.Errorf("a barrier after it: got %v, want class closed", err)
	}
}
