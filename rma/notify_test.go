package rma_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/userspace"
)

// overAll runs f with jobs of a number of ranks over UDP, over memory of one host, and over XDP.
func overAll(t *testing.T, ranks int, f func(t *testing.T, j *job)) {
	for name, start := range map[string]func(t *testing.T) *job{
		"udp": func(t *testing.T) *job { return newJobOf(t, make([]string, ranks), rma.Config{}) },
		"host memory": func(t *testing.T) *job {
			hosts := make([]string, ranks)
			for i := range hosts {
				hosts[i] = "host"
			}
			return newJobAt(t, hosts, rma.Limits{})
		},
		"xdp native":  func(t *testing.T) *job { return newLabJob(t, ranks, userspace.XDPNative, rma.Limits{}) },
		"xdp generic": func(t *testing.T) *job { return newLabJob(t, ranks, userspace.XDPGeneric, rma.Limits{}) },
	} {
		t.Run(name, func(t *testing.T) { f(t, start(t)) })
	}
}

const notifyWords = 16 << 10 // of the windows of the tests here

// notifying makes windows with counters.
func (j *job) notifying(counters int) []*rma.Win {
	return j.windowsOf(func(int) (int, int) { return 8 * notifyWords, 8 }, rma.Counters(counters))
}

// TestNotifiedOperations makes each kind of call notify, small and large, and looks at the target
// as soon as it is notified.
func TestNotifiedOperations(t *testing.T) {
	overAll(t, 2, func(t *testing.T, j *job) {
		wins := j.notifying(3)
		w, target := wins[0], rma.View[int64](wins[1])
		vec, err := datatype.Vector(notifyWords/4, 1, 2, datatype.Int64)
		vec = committed(t, vec, err)
		one, old, many, result := make([]int64, 1), make([]int64, 1), make([]int64, notifyWords), make([]int64, notifyWords)
		for i := range many {
			many[i] = int64(i)
		}
		count := uint64(0)
		check := func(name string, at int, want int64, call func() error) {
			t.Helper()
			count++
			j.must(call(), w.FlushLocal(j.ctx, 1))
			n, err := wins[1].WaitNotified(j.ctx, 1, count)
			if j.must(err); n != count {
				t.Fatalf("%s: notified %d times, not %d", name, n, count)
			}
			if got := target.Memory()[at]; got != want {
				t.Fatalf("%s: notified, and element %d is %d, not %d", name, at, got, want)
			}
		}
		j.must(w.LockAll(j.ctx))
		for round := range int64(20) {
			one[0] = round
			at := func(i int) rma.Location { return rma.At(i).Notify(1) }
			check("put", 3, round, func() error { return w.Put(buffer.Of(one), 1, at(3)) })
			check("accumulate", 3, 2*round, func() error { return w.Accumulate(buffer.Of(one), 1, at(3), rma.Sum) })
			check("get", 3, 2*round, func() error { return w.Get(buffer.Of(old), 1, at(3)) })
			check("fetch_and_op", 3, 3*round, func() error { return w.FetchAndOp(buffer.Of(one), buffer.Of(old), 1, at(3), rma.Sum) })
			check("long put", notifyWords-1, notifyWords-1, func() error { return w.Put(buffer.Of(many), 1, at(0)) })
			check("long accumulate", notifyWords-1, 2*notifyWords-2, func() error { return w.Accumulate(buffer.Of(many), 1, at(0), rma.Sum) })
			check("long get", 5, 10, func() error { return w.Get(buffer.Of(result), 1, at(0)) })
			check("put of a vector", 2*(notifyWords/4-1), notifyWords/4-1, func() error { return w.Put(buffer.Of(many[:notifyWords/4]), 1, at(0).As(1, vec)) })
			check("get of a vector", 0, 0, func() error { return w.Get(buffer.Of(result[:notifyWords/4]), 1, at(0).As(1, vec)) })
			check("compare_and_swap", 0, 0, func() error {
				return w.CompareAndSwap(buffer.Of(one), buffer.Of(one), buffer.Of(old), 1, at(0))
			})
			check("put of nothing", 0, 0, func() error { return w.Put(buffer.Of(one[:0]), 1, at(0)) })
			check("notify", notifyWords-1, round, func() error {
				many[notifyWords-1] = round
				defer func() { many[notifyWords-1] = notifyWords - 1 }()
				return errors.Join(w.Put(buffer.Of(many), 1, rma.At(0)), w.Notify(j.ctx, 1, 1))
			})
		}
		j.must(w.UnlockAll(j.ctx))
		if n, err := wins[1].ResetNotified(1); n != count || err != nil {
			t.Errorf("%d notifications, not %d; %v", n, count, err)
		}
		for i := range 3 {
			if n, err := wins[1].Notified(i); n != 0 || err != nil {
				t.Errorf("counter %d: %d; %v", i, n, err)
			}
		}
	})
}

// TestNotificationsWake has targets wait that spin, that sleep and that are parked.
func TestNotificationsWake(t *testing.T) {
	overAll(t, 3, func(t *testing.T, j *job) {
		wins := j.notifying(8)
		j.must(wins[0].LockAll(j.ctx), wins[2].LockAll(j.ctx))
		value := int64(7)
		for _, pause := range []time.Duration{0, 20 * time.Microsecond, 2 * time.Millisecond, 30 * time.Millisecond} {
			for range 10 {
				done := make(chan error)
				for counter := range 4 {
					go func() {
						_, err := wins[1].WaitNotified(j.ctx, counter, 3)
						done <- err
					}()
				}
				go func() {
					i, n, err := wins[1].WaitAnyNotified(j.ctx, 2, 7, 6, 5)
					if err == nil && (i != 6 || n != 2) {
						err = fmt.Errorf("counter %d is %d", i, n)
					}
					done <- err
				}()
				for range 3 {
					time.Sleep(pause)
					for counter := range 4 {
						origin := wins[counter%2*2]
						j.must(origin.Put(buffer.Value(&value), 1, rma.At(counter).Notify(counter)), origin.FlushLocal(j.ctx, 1))
					}
				}
				for range 2 {
					j.must(wins[0].Notify(j.ctx, 1, 6), wins[0].FlushLocal(j.ctx, 1))
				}
				for range 5 {
					j.must(<-done)
				}
				for counter := range 8 {
					_, err := wins[1].ResetNotified(counter)
					j.must(err)
				}
			}
		}
		j.must(wins[0].UnlockAll(j.ctx), wins[2].UnlockAll(j.ctx))
	})
}

// TestNotificationsToOneself waits for notifications that a rank makes of its own window.
func TestNotificationsToOneself(t *testing.T) {
	j := newJob(t, 1, rma.Limits{})
	for _, info := range []rma.Info{nil, rma.CheckConflicts()} {
		w, err := rma.Allocate(j.ctx, j.nodes[0].World(), 64, 8, rma.Counters(1), info)
		j.must(err)
		done := make(chan error)
		go func() {
			_, err := w.WaitNotified(j.ctx, 0, 2)
			done <- err
		}()
		value := int64(9)
		j.must(w.LockAll(j.ctx), w.Put(buffer.Value(&value), 0, rma.At(1).Notify(0)))
		time.Sleep(time.Millisecond)
		j.must(w.Notify(j.ctx, 0, 0), <-done, w.UnlockAll(j.ctx), w.Free(j.ctx))
	}
}

// TestNotificationsMisused gives what the calls refuse.
func TestNotificationsMisused(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	w, plain := j.notifying(2)[0], j.windows(64, 8)[0]
	value := int64(1)
	gone, cancel := context.WithCancel(j.ctx)
	cancel()
	j.must(w.LockAll(j.ctx), plain.LockAll(j.ctx))
	for name, test := range map[string]struct {
		want rma.Class
		call func() error
	}{
		"put":                {rma.ErrArg, func() error { return w.Put(buffer.Value(&value), 1, rma.At(0).Notify(2)) }},
		"put, negative":      {rma.ErrArg, func() error { return w.Put(buffer.Value(&value), 1, rma.At(0).Notify(-1)) }},
		"notify":             {rma.ErrArg, func() error { return w.Notify(j.ctx, 1, 2) }},
		"notify, no rank":    {rma.ErrRank, func() error { return w.Notify(j.ctx, 2, 0) }},
		"window without any": {rma.ErrArg, func() error { return plain.Notify(j.ctx, 1, 0) }},
		"notified":           {rma.ErrArg, func() error { return only(w.Notified(2)) }},
		"reset":              {rma.ErrArg, func() error { return only(w.ResetNotified(-1)) }},
		"wait":               {rma.ErrArg, func() error { return only(w.WaitNotified(j.ctx, 2, 1)) }},
		"wait, any":          {rma.ErrArg, func() error { _, _, err := w.WaitAnyNotified(j.ctx, 1, 0, 2); return err }},
		"wait, none":         {rma.ErrArg, func() error { _, _, err := w.WaitAnyNotified(j.ctx, 1); return err }},
		"wait, too many":     {rma.ErrArg, func() error { _, _, err := w.WaitAnyNotified(j.ctx, 1, make([]int, 1025)...); return err }},
		"wait, given up":     {rma.ErrTimeout, func() error { return only(w.WaitNotified(gone, 0, 1)) }},
	} {
		if err := test.call(); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
	j.must(w.Notify(j.ctx, rma.ProcNull, 99), w.UnlockAll(j.ctx), plain.UnlockAll(j.ctx))
	if err := w.Notify(j.ctx, 1, 0); !errors.Is(err, rma.ErrRMASync) {
		t.Errorf("notify without an epoch: %v", err)
	}
	waits := make(chan error)
	ctx, cancel := context.WithCancel(j.ctx)
	go func() { waits <- only(w.WaitNotified(ctx, 0, 1)) }()
	for rma.Acting(w) == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := w.Free(j.ctx); !errors.Is(err, rma.ErrRMASync) {
		t.Fatalf("free while a call waits for a notification: %v", err)
	}
	cancel()
	if err := <-waits; !errors.Is(err, rma.ErrTimeout) {
		t.Errorf("wait, canceled: %v", err)
	}
}

// TestNotifiedWaitsEnd has ranks die and leave that a call might be notified by, also one that the
// waiting rank has no session with.
func TestNotifiedWaitsEnd(t *testing.T) {
	for name, test := range map[string]struct {
		end   func(n *rma.Node)
		left  int // ranks that stay
		waits int
	}{
		"death":               {(*rma.Node).Silence, 3, 1},
		"death, two wait":     {(*rma.Node).Silence, 3, 2},
		"departure":           {func(n *rma.Node) { _ = n.Close() }, 1, 1},
		"departure, two wait": {func(n *rma.Node) { _ = n.Close() }, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t, 4, rma.Limits{DeadAfter: 300 * time.Millisecond})
			wins := j.notifying(2)
			waits := make(chan error)
			for range test.waits {
				go func() {
					_, _, err := wins[0].WaitAnyNotified(j.ctx, 1, 0, 1)
					waits <- err
				}()
			}
			for int(rma.Acting(wins[0])) < test.waits {
				time.Sleep(time.Millisecond)
			}
			for rank := test.left; rank < 4; rank++ {
				test.end(j.nodes[rank])
			}
			for range test.waits {
				err := <-waits
				var e *rma.Error
				if !errors.As(err, &e) || e.Class != rma.ErrProcFailed || e.Rank < test.left {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

// TestNotificationsOfEpochs has operations notify that are kept back until the target posts or gives a
// lock, and some that travel with their lock.
func TestNotificationsOfEpochs(t *testing.T) {
	overAll(t, 2, func(t *testing.T, j *job) {
		wins := j.notifying(1)
		value, count := int64(0), uint64(0)
		told := func() {
			t.Helper()
			count++
			_, err := wins[1].WaitNotified(j.ctx, 0, count)
			j.must(err)
			if got := rma.View[int64](wins[1]).Memory()[2]; got != value {
				t.Fatalf("notified of %d, and there is %d", value, got)
			}
		}
		put := func() error { return wins[0].Put(buffer.Value(&value), 1, rma.At(2).Notify(0)) }
		for range 20 {
			value++
			j.must(wins[0].Start(j.ctx, []int{1}), put(), wins[0].Complete(j.ctx))
			if n, err := wins[1].Notified(0); n != count || err != nil {
				t.Fatalf("%d notifications before the post, not %d; %v", n, count, err)
			}
			j.must(wins[1].Post(j.ctx, []int{0}))
			told()
			j.must(wins[1].Wait(j.ctx))
			value++
			j.must(wins[0].Lock(j.ctx, rma.LockExclusive, 1), put(), wins[0].Unlock(j.ctx, 1))
			told()
			value++
			held := make(chan error)
			j.must(wins[1].Lock(j.ctx, rma.LockExclusive, 1))
			go func() { held <- first(wins[0].Lock(j.ctx, rma.LockShared, 1), put(), wins[0].Unlock(j.ctx, 1)) }()
			time.Sleep(100 * time.Microsecond)
			if n, err := wins[1].Notified(0); n != count || err != nil {
				t.Fatalf("%d notifications before the lock, not %d; %v", n, count, err)
			}
			j.must(wins[1].Unlock(j.ctx, 1), <-held)
			told()
		}
	})
}

// TestFreeEndsNotifiedWaits has a wait begin while Free waits for the other ranks.
func TestFreeEndsNotifiedWaits(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := j.notifying(1)
	freed, waits := make(chan error), make(chan error)
	go func() { freed <- wins[0].Free(j.ctx) }()
	time.Sleep(10 * time.Millisecond) // most often it waits by then
	go func() { waits <- only(wins[0].WaitNotified(j.ctx, 0, 1)) }()
	time.Sleep(10 * time.Millisecond)
	j.must(wins[1].Free(j.ctx), <-freed)
	if err := <-waits; !errors.Is(err, rma.ErrWin) {
		t.Errorf("%v", err)
	}
}

// TestRefusedOperationsDoNotNotify has a target refuse small operations of each kind, many in a bundle.
func TestRefusedOperationsDoNotNotify(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	for denied, call := range map[rma.Rights]func(w *rma.Win, one, old []int64) error{
		rma.MayRead:  func(w *rma.Win, _, old []int64) error { return w.Get(buffer.Of(old), 1, rma.At(0).Notify(0)) },
		rma.MayWrite: func(w *rma.Win, one, _ []int64) error { return w.Put(buffer.Of(one), 1, rma.At(0).Notify(0)) },
		rma.MayAccumulate: func(w *rma.Win, one, old []int64) error {
			return w.FetchAndOp(buffer.Of(one), buffer.Of(old), 1, rma.At(0).Notify(0), rma.Sum)
		},
	} {
		wins := j.windowsOf(func(int) (int, int) { return 64, 8 }, rma.Info{
			"xdprma_counters": "1", "xdprma_access": (rma.MayAll &^ denied).String(),
		})
		one, old := []int64{1}, make([]int64, 500)
		j.must(wins[0].LockAll(j.ctx))
		for i := range old {
			j.must(call(wins[0], one, old[i:i+1]))
		}
		if err := wins[0].Flush(j.ctx, 1); !errors.Is(err, rma.ErrAccess) {
			t.Errorf("without the right %v: %v", denied, err)
		}
		if n, err := wins[1].Notified(0); n != 0 || err != nil {
			t.Errorf("without the right %v: %d notifications; %v", denied, n, err)
		}
		j.must(wins[0].UnlockAll(j.ctx))
	}
}

// TestNotificationsAreExecutedInXDP notifies by thousands of counters. The target's program executes each put and
// counts; its process has no part in it, and nobody waits.
func TestNotificationsAreExecutedInXDP(t *testing.T) {
	const counters = 5000
	j := newLabJob(t, 2, userspace.XDPNative, rma.Limits{})
	wins := j.notifying(counters)
	awaitReach(j, wins[0])
	w := wins[0]
	j.must(w.LockAll(j.ctx), w.Put(buffer.Value(new(int64)), 1, rma.At(0)), w.Flush(j.ctx, 1))
	before := executed(j.nodes[1])
	for i := range counters {
		value := int64(i)
		j.must(w.Put(buffer.Value(&value), 1, rma.At(i).Notify(i)), w.Flush(j.ctx, 1))
	}
	// After a stream the process may serve a few: see Win.Unattended.
	if n := executed(j.nodes[1]) - before; n < counters/2 {
		t.Errorf("the program has executed %d of %d notified puts", n, counters)
	}
	for i := range counters {
		n, err := wins[1].Notified(i)
		if got := rma.View[int64](wins[1]).Memory()[i]; n != 1 || err != nil || got != int64(i) {
			t.Fatalf("counter %d: %d, and there is %d; %v", i, n, got, err)
		}
	}
	j.must(w.UnlockAll(j.ctx))
}
