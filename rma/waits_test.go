package rma_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/lab/logs"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/lab/testjob"
	launch "github.com/xdprma/xdprma/internal/launch/job"
	"github.com/xdprma/xdprma/rma"
)

// TestLongWaitsAreTold has ranks wait for what does not come: the log of each says for what, and
// that of a window's owner who holds its lock.
func TestLongWaitsAreTold(t *testing.T) {
	once(t)
	defer func(was time.Duration) { launch.LongWait = was }(launch.LongWait)
	launch.LongWait = 10 * time.Millisecond
	places, stop, err := testjob.Places(3)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	var log logs.Log
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit)
	defer cancel()
	nodes, wins := make([]*rma.Node, 3), make([]*rma.Win, 3)
	var all sync.WaitGroup
	for rank := range nodes {
		all.Go(func() {
			c := testjob.Config(&places[rank])
			c.Logger = log.Logger().With("self", rank)
			n, err := rma.Join(ctx, c)
			if err != nil {
				t.Error(err)
				return
			}
			nodes[rank] = n
			info := rma.Info{"no_lock": "true", "colour": "red"}
			if wins[rank], err = rma.Allocate(ctx, n.World(), 64, 1, info); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	defer func() {
		for _, n := range nodes {
			all.Go(func() { _ = n.Close() })
		}
		all.Wait()
	}()
	if log.Lines("level=INFO", "msg=joined", "rank=1", "size=3", "mode=udp", "interface=lo", "address=127.0.0.1:", "security=") == 0 {
		t.Errorf("a rank that has joined does not say so:\n%s", &log)
	}
	if log.Lines("info key has no meaning", "key=no_lock", "like=no_locks") == 0 || log.Lines("colour") != 0 {
		t.Errorf("of a misspelled key the log says:\n%s", &log)
	}
	if err := wins[2].Lock(ctx, rma.LockExclusive, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := wins[2].Flush(ctx, 0); err != nil {
		t.Fatal(err)
	}
	waiting, giveUp := context.WithCancel(ctx)
	wait := func(call func(ctx context.Context) error) {
		all.Go(func() {
			if call(waiting) == nil {
				t.Error("a call that cannot end has ended")
			}
		})
	}
	wait(func(ctx context.Context) error { return wins[0].Lock(ctx, rma.LockShared, 0, 0) })
	wait(func(ctx context.Context) error {
		if err := wins[1].Lock(ctx, rma.LockShared, 0, 0); err != nil {
			return err
		}
		return wins[1].Flush(ctx, 0)
	})
	wait(func(ctx context.Context) error {
		_, err := comm.Recv(ctx, nodes[2].World(), make([]byte, 1), 1, 5)
		return err
	})
	wait(func(ctx context.Context) error { return nodes[1].World().Barrier(ctx) })
	for _, want := range [][]string{
		{"self=0", "level=INFO", "has waited for long", "the lock of window", "of this rank", "waited="},
		{"self=0", "the lock of a window of this rank is waited for", "by rank", "held by ranks\"=[2]"},
		{"self=1", "has waited for long", "the lock of window", "at rank 0"},
		{"self=2", "has waited for long", "a message from rank 1"},
		{"self=1", "has waited for long", "barrier: a message from rank"},
	} {
		log.Await(ctx, t, 1, want...)
	}
	giveUp()
	all.Wait()
}
