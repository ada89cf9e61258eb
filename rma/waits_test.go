package rma_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
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
	tellSoon(t)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit)
	defer cancel()
	var log logs.Log
	nodes := joinAndTell(ctx, t, 3, &log)
	wins := make([]*rma.Win, 3)
	var all sync.WaitGroup
	for rank, n := range nodes {
		all.Go(func() {
			var err error
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
	if log.Lines("level=INFO", "msg=joined", "rank=1", "size=3", "mode=udp", "interface=lo", "address=127.0.0.1:", "security=", "version=") == 0 {
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
	if err := errors.Join(wins[0].SetName("halo"), wins[2].SetName("halo")); err != nil {
		t.Fatal(err)
	}
	wait(func(ctx context.Context) error { _, err := wins[2].Dup(ctx); return err })
	wait(func(ctx context.Context) error { return wins[2].SetInfo(ctx, rma.Info{}) })
	for _, want := range [][]string{
		{"self=0", "level=INFO", "has waited for long", `the lock of window \"halo\" of this rank`, "waited="},
		{"self=0", "the lock of a window of this rank is waited for", "window=halo", "by rank", "held by ranks\"=[2]"},
		{"self=1", "has waited for long", "the lock of window", "at rank 0"},
		{"self=2", "has waited for long", "a message from rank 1 with tag 5"},
		{"self=1", "has waited for long", "barrier: a message from rank"},
		{"self=2", "has waited for long", `dup of window \"halo\": a message from rank`},
		{"self=2", "has waited for long", `set_info of window \"halo\": a message from rank`},
	} {
		log.Await(ctx, t, 1, want...)
	}
	giveUp()
	all.Wait()
}

// TestCallsThatCreateAreNamed has a rank wait for one that does not call: the log says in which call, though
// that is made of others.
func TestCallsThatCreateAreNamed(t *testing.T) {
	once(t)
	tellSoon(t)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit)
	defer cancel()
	var all sync.WaitGroup
	for want, call := range map[string]func(ctx context.Context, n *rma.Node) error{
		"window create: a message from rank 1": func(ctx context.Context, n *rma.Node) error {
			_, err := rma.AllocateOf[int64](ctx, n.World(), 8)
			return err
		},
		"comm dup: a message from rank 1": func(ctx context.Context, n *rma.Node) error {
			_, err := n.World().Dup(ctx)
			return err
		},
		"comm create_group: the other members of the group": func(ctx context.Context, n *rma.Node) error {
			_, err := n.World().CreateGroup(ctx, n.World().Group(), 0)
			return err
		},
	} {
		var log logs.Log
		n := joinAndTell(ctx, t, 2, &log)[0]
		all.Go(func() {
			waiting, giveUp := context.WithCancel(ctx)
			all.Go(func() {
				if call(waiting, n) == nil {
					t.Errorf("%s has ended", want)
				}
			})
			log.Await(ctx, t, 1, "self=0", "has waited for long", want)
			giveUp()
		})
	}
	all.Wait()
}

// TestServersAreNotWarned has a rank wait for messages of any rank, as servers do, and for others: the first of
// these waits are no warning, however long they last. Of those for a known rank the rendezvous warns, once for all.
func TestServersAreNotWarned(t *testing.T) {
	once(t)
	tellSoon(t)
	launch.LongestSilence = launch.LongWait
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit)
	defer cancel()
	var log logs.Log
	world := joinAndTell(ctx, t, 2, &log)[0].World()
	irecv := func(source, tag int) *comm.Request {
		r, err := comm.Irecv(ctx, world, make([]byte, 1), source, tag, nil)
		if err != nil {
			t.Error(err)
		}
		return r
	}
	recv := func(source, tag int) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := comm.Recv(ctx, world, make([]byte, 1), source, tag)
			return err
		}
	}
	const someone = comm.AnySource
	waiting, giveUp := context.WithCancel(ctx)
	var all sync.WaitGroup
	calls := []struct {
		what, level string
		call        func(ctx context.Context) error
	}{
		{`"a message from any rank"`, "level=INFO", recv(someone, comm.AnyTag)},
		{`"a message from any rank with tag 1"`, "level=INFO", recv(someone, 1)},
		{`"a message from any rank with tag 2"`, "level=INFO", func(ctx context.Context) error {
			_, err := world.Probe(ctx, someone, 2)
			return err
		}},
		{`"a message from any rank with tag 3"`, "level=INFO", func(ctx context.Context) error { return irecv(someone, 3).Wait(ctx) }},
		{`"one of 2 requests"`, "level=INFO", func(ctx context.Context) error {
			_, err := comm.WaitAny(ctx, irecv(someone, 4), irecv(someone, 5))
			return err
		}},
		{`"one of 3 requests"`, "level=WARN", func(ctx context.Context) error {
			_, err := comm.WaitAny(ctx, irecv(someone, 6), irecv(someone, 7), irecv(1, 8))
			return err
		}},
		{`"a message from rank 1 with tag 9"`, "level=INFO", recv(1, 9)},
		{`"a message from rank 1 with tag 10"`, "level=INFO", func(ctx context.Context) error { return irecv(1, 10).Wait(ctx) }},
		{`"rank 1 to take a message with tag 11"`, "level=INFO", func(ctx context.Context) error {
			return comm.Send(ctx, world, make([]byte, 1<<20), 1, 11)
		}},
		{`"barrier: a message from rank 1"`, "level=INFO", world.Barrier},
	}
	for _, c := range calls {
		all.Go(func() {
			if c.call(waiting) == nil {
				t.Errorf("a wait for %s has ended", c.what)
			}
		})
	}
	for _, c := range calls {
		log.Await(ctx, t, 1, "has waited for long", c.what, c.level)
	}
	log.Await(ctx, t, 1, "self=0", "level=WARN", "a rank keeps others waiting, and does not wait itself", "rank=1", "waiting=0")
	for _, c := range calls {
		if n := log.Lines("has waited for long", c.what) - log.Lines("has waited for long", c.what, c.level); n != 0 {
			t.Errorf("%d lines of another level than %s about a wait for %s:\n%s", n, c.level, c.what, &log)
		}
	}
	giveUp()
	all.Wait()
}

// TestAbsentRankIsWarnedOfOnce has a rank wait for one that never joins: the warning says which, and there is
// none for each call besides.
func TestAbsentRankIsWarnedOfOnce(t *testing.T) {
	once(t)
	tellSoon(t)
	launch.LongestSilence = launch.LongWait
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit)
	defer cancel()
	var log logs.Log
	n := joinAndTell(ctx, t, 2, &log, 1)[0]
	waiting, giveUp := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer giveUp()
	all.Go(func() { _, _ = comm.Recv(waiting, n.World(), make([]byte, 1), 1, 5) })
	log.Await(ctx, t, 1, "level=INFO", "a rank has not joined the job yet", "rank=1")
	log.Await(ctx, t, 1, "level=WARN", "a rank has not joined the job, and others wait for it", "rank=1", "waiting=0", `for="a message from rank 1 with tag 5"`)
	all.Go(func() { _ = n.World().Barrier(waiting) })
	log.Await(ctx, t, 1, "level=INFO", "has waited for long", "barrier: a message from rank 1")
	expected := log.Lines("level=WARN", "and others wait for it") + log.Lines("the rendezvous cannot be reached yet") // on a busy machine
	if n := log.Lines("level=WARN") - expected; n != 0 {
		t.Errorf("there are %d other warnings:\n%s", n, &log)
	}
}

// tellSoon has ranks tell of each wait that they find.
func tellSoon(t *testing.T) {
	first, longest := launch.LongWait, launch.LongestSilence
	t.Cleanup(func() { launch.LongWait, launch.LongestSilence = first, longest })
	launch.LongWait = 10 * time.Millisecond
}

// joinAndTell has ranks join a job that ends with the test, but for those that are absent. Each has its number in the
// log. Rank 0 serves the rendezvous.
func joinAndTell(ctx context.Context, t *testing.T, size int, log *logs.Log, absent ...int) []*rma.Node {
	t.Helper()
	places, stop, err := testjob.Places(size)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	at := "unix:" + filepath.Join(t.TempDir(), "rendezvous")
	nodes := make([]*rma.Node, size)
	var all sync.WaitGroup
	for rank := range nodes {
		if slices.Contains(absent, rank) {
			continue
		}
		places[rank].Rendezvous, places[rank].Serve = at, rank == 0
		all.Go(func() {
			c := testjob.Config(&places[rank])
			c.Logger = log.Logger().With("self", rank)
			n, err := rma.Join(ctx, c)
			if err != nil {
				t.Error(err)
			}
			nodes[rank] = n
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() {
		for rank, n := range nodes {
			if !slices.Contains(absent, rank) {
				all.Go(func() { _ = n.Close() })
			}
		}
		all.Wait()
	})
	return nodes
}

// TestWhoKeepsOthersWaitingIsNamed has a rank stay away from a barrier of nine: it is named once, by whoever serves the
// rendezvous, and no other rank warns. When it has come, and one of them stays away, that one is named.
func TestWhoKeepsOthersWaitingIsNamed(t *testing.T) {
	once(t)
	tellSoon(t)
	launch.LongestSilence = launch.LongWait
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit)
	defer cancel()
	var log logs.Log
	const size = 9
	nodes := joinAndTell(ctx, t, size, &log)
	for _, away := range []int{4, 7} {
		var all sync.WaitGroup
		come := make(chan struct{})
		for rank, n := range nodes {
			all.Go(func() {
				if rank == away {
					<-come
				}
				if err := n.World().Barrier(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		log.Await(ctx, t, 1, "self=0", "level=WARN", "a rank keeps others waiting", fmt.Sprintf("rank=%d", away), "barrier: a message from rank")
		close(come)
		all.Wait()
	}
	if log.Lines("level=WARN", "waited for") != 0 {
		t.Errorf("others warn too:\n%s", &log)
	}
}
