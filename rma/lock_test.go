package rma_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
)

// TestExclusiveLocks lets all ranks read, change and write back elements under
// exclusive locks of several windows. Without exclusion, updates get lost.
func TestExclusiveLocks(t *testing.T) {
	const ranks, windows, times = 4, 4, 25
	j := newJob(t, ranks, rma.Limits{})
	var all [windows][]*rma.Win
	for i := range all {
		all[i] = j.windows(16, 8)
	}
	j.each(func(n *rma.Node) error {
		for k := range times * windows * ranks {
			w, target := all[k%windows][n.Rank()], (k/windows+n.Rank())%ranks
			var v [2]int64
			err := errors.Join(
				w.Lock(j.ctx, rma.LockExclusive, target, 0),
				w.Get(buffer.Of(v[:]), target, rma.At(0)), w.Flush(j.ctx, target),
			)
			if v[1] != -v[0] {
				return fmt.Errorf("saw the state %d of a change that another rank makes", v)
			}
			v[0]++
			err = errors.Join(err, w.Put(buffer.Of(v[:1]), target, rma.At(0)), w.Flush(j.ctx, target))
			v[1]--
			err = errors.Join(err, w.Put(buffer.Of(v[1:]), target, rma.At(1)), w.Unlock(j.ctx, target))
			if err != nil {
				return err
			}
		}
		return n.World().Barrier(j.ctx)
	})
	for i := range all {
		for r, w := range all[i] {
			if got := rma.Slice[int64](w.Memory()); got[0] != ranks*times || got[1] != -ranks*times {
				t.Errorf("window %d of rank %d holds %d, want %d", i, r, got, ranks*times)
			}
		}
	}
}

// TestLocksInOneOrder has all ranks hold exclusive locks of all targets of two windows at
// once, which they take in one order: no rank waits for one that waits for it.
func TestLocksInOneOrder(t *testing.T) {
	const times = 20
	for _, hosts := range mixedHosts {
		j := newJobAt(t, hosts, rma.Limits{})
		all := [][]*rma.Win{j.windows(8, 8), j.windows(8, 8)}
		j.each(func(n *rma.Node) error {
			each := func(f func(w *rma.Win, target int) error) (err error) {
				for _, wins := range all {
					for target := range n.Size() {
						err = errors.Join(err, f(wins[n.Rank()], target))
					}
				}
				return err
			}
			for range times {
				err := each(func(w *rma.Win, target int) error { // a call that has waited holds up later locks as before
					err := w.Lock(j.ctx, rma.LockShared, target, 0)
					_, got := rma.Load[int64](j.ctx, w, target, rma.At(0))
					return errors.Join(err, got, w.Unlock(j.ctx, target))
				})
				err = errors.Join(err, each(func(w *rma.Win, target int) error { return w.Lock(j.ctx, rma.LockExclusive, target, 0) }))
				err = errors.Join(err, each(func(w *rma.Win, target int) error {
					v := int64(0)
					err := errors.Join(w.Get(buffer.Value(&v), target, rma.At(0)), w.Flush(j.ctx, target))
					v++
					return errors.Join(err, w.Put(buffer.Value(&v), target, rma.At(0)))
				}))
				err = errors.Join(err, each(func(w *rma.Win, target int) error { return w.Unlock(j.ctx, target) }))
				if err != nil {
					return err
				}
			}
			return n.World().Barrier(j.ctx)
		})
		for _, wins := range all {
			for r, w := range wins {
				if got := rma.Slice[int64](w.Memory())[0]; got != int64(times*len(hosts)) {
					t.Errorf("%q: rank %d holds %d, want %d", hosts, r, got, times*len(hosts))
				}
			}
		}
	}
}

// TestLockBesideOneWaitedFor has one goroutine of a rank wait, in each way that there is, for
// an operation under a lock that another rank holds. Another goroutine locks meanwhile, and
// only then the first lock is given up.
func TestLockBesideOneWaitedFor(t *testing.T) {
	j := newJobAt(t, []string{"", ""}, rma.Limits{})
	a, b := j.windows(8, 8), j.windows(8, 8)
	w, other := a[0], b[0]
	until := func(test func() (bool, error)) error {
		for {
			if done, err := test(); done || err != nil {
				return err
			}
			runtime.Gosched()
		}
	}
	ways := map[string]func(r *comm.Request) error{
		"wait":     func(r *comm.Request) error { return r.Wait(j.ctx) },
		"wait all": func(r *comm.Request) error { return comm.WaitAll(j.ctx, nil, r) },
		"wait any": func(r *comm.Request) error { _, err := comm.WaitAny(j.ctx, r); return err },
		"test":     func(r *comm.Request) error { return until(r.Test) },
		"test all": func(r *comm.Request) error { return until(func() (bool, error) { return comm.TestAll(nil, r) }) },
		"test any": func(r *comm.Request) error {
			return until(func() (bool, error) { _, done, err := comm.TestAny(r); return done, err })
		},
		"load":  func(*comm.Request) error { _, err := rma.Load[int64](j.ctx, w, 1, rma.At(0)); return err },
		"flush": func(*comm.Request) error { return w.Flush(j.ctx, 1) },
	}
	for name, wait := range ways {
		var v int64
		j.must(a[1].Lock(j.ctx, rma.LockExclusive, 1, 0), w.Lock(j.ctx, rma.LockExclusive, 1, 0))
		r, err := w.Rget(buffer.Value(&v), 1, rma.At(0))
		j.must(err)
		waited := make(chan error, 1)
		go func() { waited <- wait(r) }()
		if err := other.Lock(j.ctx, rma.LockShared, 1, 0); err != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			j.must(other.Unlock(j.ctx, 1))
		}
		j.must(a[1].Unlock(j.ctx, 1), <-waited, r.Wait(j.ctx), w.Unlock(j.ctx, 1))
	}
}

// TestSharedLocks holds shared locks of one target at several ranks at once, while
// an exclusive request waits; it gets the lock when they have gone.
func TestSharedLocks(t *testing.T) {
	once(t)
	j := newJob(t, 4, rma.Limits{})
	wins := j.windows(8, 8)
	for r := range 3 { // these hold it, and it is not the others that could keep them from it
		one := int64(1)
		j.must(wins[r].Lock(j.ctx, rma.LockShared, 0, 0), wins[r].Accumulate(buffer.Value(&one), 0, rma.At(0), rma.Sum), wins[r].Flush(j.ctx, 0))
	}
	ten := int64(10)
	j.must(wins[3].Lock(j.ctx, rma.LockExclusive, 0, 0), wins[3].Put(buffer.Value(&ten), 0, rma.At(0)))
	done := make(chan error)
	go func() { done <- wins[3].Unlock(j.ctx, 0) }()
	seen := int64(0)
	for r := range 3 {
		j.must(wins[r].Get(buffer.Value(&seen), 0, rma.At(0)), wins[r].Flush(j.ctx, 0))
		if seen != 3 {
			t.Errorf("rank %d saw %d while it held the lock", r, seen)
		}
	}
	for r := range 3 {
		j.must(wins[r].Unlock(j.ctx, 0))
	}
	j.must(<-done, wins[0].Sync())
	if got := rma.Slice[int64](wins[0].Memory())[0]; got != 10 {
		t.Errorf("the window holds %d, want 10", got)
	}
}

// TestFlushes completes gets by each of the flushes, in each kind of epoch.
func TestFlushes(t *testing.T) {
	j := newJob(t, 3, rma.Limits{})
	wins := j.windows(24, 8)
	for r, w := range wins {
		copy(rma.Slice[int64](w.Memory()), []int64{int64(r), int64(10 + r), 7})
		if err := w.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	w := wins[0]
	flushes := map[string]func() error{
		"flush": func() error {
			return errors.Join(w.Flush(j.ctx, 0), w.Flush(j.ctx, 1), w.Flush(j.ctx, 2))
		},
		"flush_local": func() error {
			return errors.Join(w.FlushLocal(j.ctx, 0), w.FlushLocal(j.ctx, 1), w.FlushLocal(j.ctx, 2))
		},
		"flush_ranks":       func() error { return w.FlushRanks(j.ctx, 2, 0, rma.ProcNull, 1, 2) },
		"flush_local_ranks": func() error { return w.FlushLocalRanks(j.ctx, 0, 1, 2, 2, 2, 2, 2, rma.ProcNull, 1) },
		"flush_all":         func() error { return w.FlushAll(j.ctx) },
		"flush_local_all":   func() error { return w.FlushLocalAll(j.ctx) },
	}
	lock := func(assert rma.Assert) func() error {
		return func() (err error) {
			for target := range wins {
				err = errors.Join(err, w.Lock(j.ctx, rma.LockShared, target, assert))
			}
			return err
		}
	}
	unlock := func() (err error) {
		for target := range wins {
			err = errors.Join(err, w.Unlock(j.ctx, target))
		}
		return err
	}
	epochs := map[string]struct{ begin, end func() error }{
		"lock":             {lock(0), unlock},
		"lock nocheck":     {lock(rma.ModeNoCheck), unlock},
		"lock_all":         {func() error { return w.LockAll(j.ctx, 0) }, func() error { return w.UnlockAll(j.ctx) }},
		"lock_all nocheck": {func() error { return w.LockAll(j.ctx, rma.ModeNoCheck) }, func() error { return w.UnlockAll(j.ctx) }},
	}
	for epoch, e := range epochs {
		j.must(e.begin())
		for name, flush := range flushes {
			j.must(flush()) // nothing is outstanding, or nothing was ever issued
			got := [3][2]int64{}
			for target := range wins {
				j.must(w.Get(buffer.Of(got[target][:]), target, rma.At(0)))
			}
			j.must(flush())
			if want := [3][2]int64{{0, 10}, {1, 11}, {2, 12}}; got != want {
				t.Errorf("%s, %s: read %d, want %d", epoch, name, got, want)
			}
		}
		// The end of an epoch completes too.
		got := [3]int64{}
		for target := range wins {
			j.must(w.Get(buffer.Value(&got[target]), target, rma.At(2)))
		}
		j.must(e.end())
		if got != [3]int64{7, 7, 7} {
			t.Errorf("%s: after its end read %d", epoch, got)
		}
	}
}

// TestUnlockCancelled ends the context inside Unlock and UnlockAll while the lock
// is held by another rank: the unlock can be tried again, nothing slips in between,
// and the lock is free afterwards.
func TestUnlockCancelled(t *testing.T) {
	once(t)
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows(8, 8)
	w, owner := wins[0], wins[1]
	cancelled, cancel := context.WithCancel(j.ctx)
	cancel()
	one := int64(1)
	for name, e := range map[string]struct {
		begin func() error
		end   func(ctx context.Context) error
	}{
		"unlock":     {func() error { return w.Lock(j.ctx, rma.LockShared, 1, 0) }, func(ctx context.Context) error { return w.Unlock(ctx, 1) }},
		"unlock_all": {func() error { return w.LockAll(j.ctx, 0) }, w.UnlockAll},
	} {
		for _, held := range []bool{true, false} {
			if held {
				j.must(owner.Lock(j.ctx, rma.LockExclusive, 1, 0))
			}
			j.must(e.begin(), w.Accumulate(buffer.Value(&one), 1, rma.At(0), rma.Sum))
			err := e.end(cancelled)
			if err != nil && !errors.Is(err, context.Canceled) || held && err == nil {
				t.Fatalf("%s: got %v, want cancelled", name, err)
			}
			if held {
				if err := w.Put(buffer.Value(&one), 1, rma.At(0)); !errors.Is(err, rma.ErrRMASync) {
					t.Errorf("%s: a put after it: got %v, want class sync", name, err)
				}
				if err := e.end(cancelled); !errors.Is(err, context.Canceled) {
					t.Errorf("%s again: got %v, want cancelled", name, err)
				}
				j.must(owner.Unlock(j.ctx, 1))
			}
			if err != nil {
				j.must(e.end(j.ctx))
			}
			// The lock is free, and the epoch closed.
			j.must(owner.Lock(j.ctx, rma.LockExclusive, 1, 0), owner.Unlock(j.ctx, 1))
			j.must(e.begin(), e.end(j.ctx))
		}
	}
	if got := rma.Slice[int64](owner.Memory())[0]; got != 4 {
		t.Errorf("the counter is %d, want 4", got)
	}
}

// TestOwnLockCancelled ends the context while a rank waits for the lock of its
// own window: there is no epoch, and the request does not linger.
func TestOwnLockCancelled(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := j.windows(8, 8)
	j.must(wins[0].Lock(j.ctx, rma.LockExclusive, 1, 0), wins[0].Flush(j.ctx, 1))
	cancelled, cancel := context.WithCancel(j.ctx)
	cancel()
	if err := wins[1].Lock(cancelled, rma.LockExclusive, 1, 0); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want cancelled", err)
	}
	if err := wins[1].Unlock(j.ctx, 1); !errors.Is(err, rma.ErrRMASync) {
		t.Errorf("unlock: got %v, want class sync", err)
	}
	j.must(wins[0].Unlock(j.ctx, 1), wins[0].Lock(j.ctx, rma.LockExclusive, 1, 0), wins[0].Unlock(j.ctx, 1))
	j.must(wins[1].Lock(j.ctx, rma.LockExclusive, 1, 0), wins[1].Unlock(j.ctx, 1))
}

// TestLockAllPasses has two ranks lock all and access two targets in opposite order,
// while exclusive requests wait at both.
func TestLockAllPasses(t *testing.T) {
	once(t)
	j := newJob(t, 6, rma.Limits{})
	wins := j.windows(8, 8)
	one := int64(1)
	add := func(rank, target int) error {
		return wins[rank].Accumulate(buffer.Value(&one), target, rma.At(0), rma.Sum)
	}
	done := make(chan error)
	for i := range 2 {
		j.must(wins[i].LockAll(j.ctx, 0), add(i, 4+i), wins[i].Flush(j.ctx, 4+i))
	}
	for i := range 2 {
		w := wins[2+i]
		j.must(w.Lock(j.ctx, rma.LockExclusive, 4+i, 0), add(2+i, 4+i))
		go func() { done <- w.Unlock(j.ctx, 4+i) }()
		testenv.Await(t, "the wait for the lock", func() bool { return j.nodes[4+i].LockWaits() > 0 })
	}
	for i := range 2 {
		go func() { done <- errors.Join(add(i, 5-i), wins[i].FlushAll(j.ctx), wins[i].UnlockAll(j.ctx)) }()
	}
	for range 4 {
		j.must(<-done)
	}
	for rank := 4; rank < 6; rank++ {
		j.must(wins[rank].Sync())
		if got := rma.Slice[int64](wins[rank].Memory())[0]; got != 3 {
			t.Errorf("rank %d counted %d, want 3", rank, got)
		}
	}
}

// TestLockAllStarvesNobody has two ranks lock all again and again so that one of them
// always holds the lock of a target whose exclusive lock a third one wants: it gets it.
func TestLockAllStarvesNobody(t *testing.T) {
	t.Parallel()
	for _, hosts := range [][]string{{"", "", "", ""}, {"a", "a", "a", "a"}, {"a", "b", "a", "b"}} {
		j := newJobAt(t, hosts, soon)
		wins := j.windows(8, 8)
		one := int64(1)
		var stop atomic.Bool
		var epochs [3]atomic.Int64 // of ranks 1 and 2, in which they have the lock of rank 0
		done := make(chan error)
		for rank := 1; rank <= 2; rank++ {
			go func() {
				done <- func() error {
					w, mine, other := wins[rank], &epochs[rank], &epochs[3-rank]
					for !stop.Load() {
						err := errors.Join(w.LockAll(j.ctx, 0), w.Accumulate(buffer.Value(&one), 0, rma.At(0), rma.Sum), w.Flush(j.ctx, 0))
						if err != nil {
							return err
						}
						mine.Add(1)
						// Until the other one has it too; with a bound, for it may wait its turn.
						seen := other.Load()
						for range 50 {
							if other.Load() > seen || stop.Load() {
								break
							}
							time.Sleep(time.Millisecond)
						}
						if err := w.UnlockAll(j.ctx); err != nil {
							return err
						}
					}
					return nil
				}()
			}()
		}
		testenv.Await(t, "epochs of both", func() bool { return epochs[1].Load() >= 3 && epochs[2].Load() >= 3 })
		w := wins[3]
		err := errors.Join(w.Lock(j.ctx, rma.LockExclusive, 0, 0), w.Accumulate(buffer.Value(&one), 0, rma.At(0), rma.Sum), w.Unlock(j.ctx, 0))
		stop.Store(true)
		j.must(err, <-done, <-done)
		j.close()
	}
}

// TestLockAllPassesAtHome has a rank lock all while another one waits for its exclusive lock
// behind a third one that has locked all: it does not wait for either.
func TestLockAllPassesAtHome(t *testing.T) {
	j := newJob(t, 3, rma.Limits{})
	wins := j.windows(8, 8)
	one := int64(1)
	j.must(wins[0].LockAll(j.ctx, 0), wins[0].Accumulate(buffer.Value(&one), 2, rma.At(0), rma.Sum), wins[0].FlushAll(j.ctx))
	waits := make(chan error, 1)
	go func() {
		waits <- errors.Join(wins[1].Lock(j.ctx, rma.LockExclusive, 2, 0), wins[1].Flush(j.ctx, 2), wins[1].Unlock(j.ctx, 2))
	}()
	for j.nodes[2].LockWaits() == 0 {
		runtime.Gosched()
	}
	j.must(wins[2].LockAll(j.ctx, 0), addOne(wins[2], []int{0, 1, 2}), wins[2].UnlockAll(j.ctx))
	j.must(wins[0].UnlockAll(j.ctx), <-waits)
}
