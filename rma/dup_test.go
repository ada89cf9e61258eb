package rma_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

// duplicated is a window of a rank and its duplicates, on the same words.
type duplicated struct {
	ctx   context.Context
	node  *rma.Node
	wins  []*rma.Win // the window, a duplicate of it, and a duplicate of that
	words []int64    // of this rank
	base  []int64    // displacement of each rank's first word
	step  int64      // displacement from one word to the next
}

const dupWords = 8

// newDuplicated makes a window of that flavor on all ranks, and its duplicates.
func newDuplicated(ctx context.Context, n *rma.Node, flavor rma.Flavor) (*duplicated, error) {
	var w *rma.Win
	var err error
	c := n.World()
	d := &duplicated{ctx: ctx, node: n, words: make([]int64, dupWords), base: make([]int64, n.Size()), step: 1}
	switch flavor {
	case rma.FlavorCreate:
		w, err = rma.Create(ctx, c, rma.BytesOf(d.words), 8)
	case rma.FlavorAllocate:
		w, err = rma.Allocate(ctx, c, 8*dupWords, 8)
	case rma.FlavorShared:
		w, err = rma.AllocateShared(ctx, c, 8*dupWords, 8)
	case rma.FlavorDynamic:
		d.step = 8
		if w, err = rma.CreateDynamic(ctx, c); err == nil {
			err = first(w.Attach(rma.BytesOf(d.words)), comm.Allgather(ctx, c, []int64{rma.Address(buffer.Of(d.words))}, d.base))
		}
	}
	if err != nil {
		return nil, err
	}
	if flavor == rma.FlavorAllocate || flavor == rma.FlavorShared {
		d.words = rma.Slice[int64](w.Memory())
	}
	d.wins = []*rma.Win{w}
	for range 2 {
		if w, err = w.Dup(ctx); err != nil {
			return nil, err
		}
		d.wins = append(d.wins, w)
	}
	return d, c.Barrier(ctx) // what was attached is
}

// at returns where the word i of a rank is.
func (d *duplicated) at(rank, i int) rma.Location { return rma.At(d.base[rank] + d.step*int64(i)) }

// same compares what duplicates have in common with the window.
func (d *duplicated) same() error {
	w := d.wins[0]
	for i, o := range d.wins[1:] {
		if o.Flavor() != w.Flavor() || o.Size() != w.Size() || o.DispUnit() != w.DispUnit() || o.Comm() != w.Comm() || rma.IDOf(o) == rma.IDOf(w) {
			return fmt.Errorf("duplicate %d: flavour %v, size %d, unit %d", i, o.Flavor(), o.Size(), o.DispUnit())
		}
		if rma.Address(buffer.Of(o.Memory())) != rma.Address(buffer.Of(w.Memory())) {
			return fmt.Errorf("duplicate %d has other memory", i)
		}
		for r := range d.base {
			if w.Flavor() == rma.FlavorDynamic {
				break
			}
			a, err := w.SharedQuery(r)
			b, err2 := o.SharedQuery(r)
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			if a.DispUnit != b.DispUnit || cap(a.Memory) != cap(b.Memory) || rma.Address(buffer.Of(a.Memory)) != rma.Address(buffer.Of(b.Memory)) {
				return fmt.Errorf("duplicate %d finds other memory of rank %d", i, r)
			}
		}
	}
	return nil
}

// put puts v into word 0 of the next rank by one window, and returns what the previous has put
// here, as another window reads it.
func (d *duplicated) put(by, read *rma.Win, v int64) error {
	size, me := d.node.Size(), d.node.Rank()
	next, got, want := (me+1)%size, int64(0), v-int64(me)+int64((me+size-1)%size)
	err := first(by.Fence(d.ctx, 0), by.Put(buffer.Value(&v), next, d.at(next, 0)), by.Fence(d.ctx, rma.ModeNoSucceed),
		read.Lock(d.ctx, rma.LockShared, me, 0), read.Get(buffer.Value(&got), me, d.at(me, 0)), read.Unlock(d.ctx, me),
		d.node.World().Barrier(d.ctx))
	if err == nil && got != want {
		err = fmt.Errorf("got %d, want %d", got, want)
	}
	return err
}

// count has all ranks add to word 1 of rank 0 by all windows at once.
func (d *duplicated) count() error {
	const times = 20
	errs := make([]error, len(d.wins))
	var all sync.WaitGroup
	for i, w := range d.wins {
		all.Go(func() {
			one, old := int64(1), int64(0)
			errs[i] = w.LockAll(d.ctx, 0)
			for range times {
				errs[i] = first(errs[i], w.FetchAndOp(buffer.Value(&one), buffer.Value(&old), 0, d.at(0, 1), rma.Sum), w.Flush(d.ctx, 0))
			}
			errs[i] = first(errs[i], w.UnlockAll(d.ctx))
		})
	}
	all.Wait()
	if err := errors.Join(append(errs, d.node.World().Barrier(d.ctx))...); err != nil {
		return err
	}
	want := int64(times * len(d.wins) * d.node.Size())
	if got := atomic.LoadInt64(&d.words[1]); d.node.Rank() == 0 && got != want {
		return fmt.Errorf("counted %d, want %d", got, want)
	}
	return nil
}

// free frees the windows in an order, and uses those that are left in between.
func (d *duplicated) free(order []int) error {
	left := slices.Clone(d.wins)
	for _, i := range order {
		w := d.wins[i]
		if err := w.Free(d.ctx); err != nil {
			return err
		}
		left = slices.DeleteFunc(left, func(o *rma.Win) bool { return o == w })
		if _, err := w.Dup(d.ctx); !errors.Is(err, rma.ErrWin) || w.Memory() != nil {
			return fmt.Errorf("Dup of a window that was freed: %v", err)
		}
		for k, o := range left {
			if err := d.put(o, left[len(left)-1-k], int64(1000*i+100*k+d.node.Rank())); err != nil {
				return fmt.Errorf("after window %d was freed: %w", i, err)
			}
		}
	}
	return nil
}

// duplicates is a program of TestDup.
func duplicates(ctx context.Context, n *rma.Node, flavor rma.Flavor, order []int) error {
	d, err := newDuplicated(ctx, n, flavor)
	if err != nil {
		return err
	}
	if err := first(d.same(), d.count()); err != nil {
		return err
	}
	for i, by := range d.wins {
		for k, read := range d.wins {
			if err := d.put(by, read, int64(100*i+10*k+n.Rank())); err != nil {
				return fmt.Errorf("put by window %d, read by %d: %w", i, k, err)
			}
		}
	}
	return d.free(order)
}

var (
	allFlavors = []rma.Flavor{rma.FlavorCreate, rma.FlavorAllocate, rma.FlavorDynamic, rma.FlavorShared}
	dupOrders  = [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}}
)

// TestDup makes duplicates of windows of all flavors. All reach the same memory, and go in any
// order.
func TestDup(t *testing.T) {
	for name, hosts := range map[string][]string{"frames": {"", "", ""}, "a host": {"a", "a", "a"}, "two hosts": {"a", "b", "a"}} {
		t.Run(name, func(t *testing.T) {
			j := newJobAt(t, hosts, rma.Limits{})
			for i, flavor := range allFlavors {
				if name != "a host" && flavor == rma.FlavorShared {
					continue
				}
				t.Run(flavor.String(), func(t *testing.T) {
					for _, order := range dupOrders {
						for r, err := range j.outcomes(func(n *rma.Node) error { return duplicates(j.ctx, n, flavor, order) }) {
							if err != nil {
								t.Fatalf("rank %d, case %d, order %v: %v", r, i, order, err)
							}
						}
					}
				})
			}
		})
	}
}

// TestDupOverLoss is TestDup where frames get lost, and conflicts are looked for.
func TestDupOverLoss(t *testing.T) {
	once(t)
	for i, flavor := range allFlavors {
		hosts := 3
		if flavor == rma.FlavorShared {
			hosts = 1
		}
		t.Run(flavor.String(), func(t *testing.T) {
			for _, options := range [][]rmatest.Option{nil, {rmatest.Unchecked()}} {
				options = append(options, rmatest.Hosts(hosts), &rmatest.Network{Loss: 0.05, Duplication: 0.02, Reordering: 0.05})
				err := rmatest.Job(3, func(ctx context.Context, n *rma.Node) error {
					return duplicates(ctx, n, flavor, dupOrders[i%len(dupOrders)])
				}, options...)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestDupInReach has windows in memory that XDP programs reach, in which ranks of one host
// act directly, or by frames.
func TestDupInReach(t *testing.T) {
	for name, hosts := range map[string][]string{"a rank a host": {"a", "b", "c"}, "a rank is away": oneAway} {
		t.Run(name, func(t *testing.T) {
			j := newLabJobAt(t, hosts, false, rma.Limits{})
			before := kernelMemory(t)
			for _, order := range dupOrders {
				j.each(func(n *rma.Node) error { return duplicates(j.ctx, n, rma.FlavorAllocate, order) })
			}
			awaitNoMoreKernelMemory(t, before)
			wins := j.windowsOf(func(int) (int, int) { return 64, 8 }, rma.Counters(1))
			dups := dupAll(j, wins)
			bare := dupAll(j, wins, rma.Unattended(false))
			if !dups[2].Unattended(0) || dups[0].Info()["xdprma_express"] != "true" || bare[2].Unattended(0) || bare[0].Info()["xdprma_express"] != "false" {
				t.Errorf("in reach %v, info %v; without %v, info %v", dups[2].Unattended(0), dups[0].Info(), bare[2].Unattended(0), bare[0].Info())
			}
			freeAll(j, wins)
			// The program executes what is asked for under a lock that the process has granted.
			w, one, old := dups[2], int64(1), int64(0)
			j.must(w.LockAll(j.ctx, 0), w.Flush(j.ctx, 0))
			for done, i := executed(j.nodes[0]), int64(0); i < 100 || executed(j.nodes[0]) < done+50; i++ {
				j.must(w.FetchAndOp(buffer.Value(&one), buffer.Value(&old), 0, rma.At(0), rma.Sum), w.Flush(j.ctx, 0))
				if old != i {
					t.Fatalf("fetched %d, not %d", old, i)
				}
			}
			j.must(w.UnlockAll(j.ctx))
			countLocked(j, dups, 0)
			j.must(w.Lock(j.ctx, rma.LockExclusive, 0, 0), bare[0].Lock(j.ctx, rma.LockExclusive, 0, 0), bare[0].Unlock(j.ctx, 0), w.Unlock(j.ctx, 0))
			freeAll(j, bare)
			freeAll(j, dups)
			awaitNoMoreKernelMemory(t, before)
		})
	}
}

// countLocked has all ranks count in a word of a rank and notify it, each time under an exclusive
// lock, until its program has executed some locks: they travel with what is done under them.
func countLocked(j *job, wins []*rma.Win, to int) {
	j.t.Helper()
	var sum atomic.Int64
	done := executed(j.nodes[to])
	j.each(func(n *rma.Node) error {
		w, one, old, v := wins[n.Rank()], int64(1), int64(0), int64(0)
		for i := 0; i < 100 || executed(j.nodes[to]) < done+50; i++ {
			if i == 100_000 {
				return fmt.Errorf("the program of rank %d has executed %d requests", to, executed(j.nodes[to])-done)
			}
			err := first(w.Lock(j.ctx, rma.LockExclusive, to, 0), w.FetchAndOp(buffer.Value(&one), buffer.Value(&old), to, rma.At(1).Notify(0), rma.Sum),
				w.Unlock(j.ctx, to),
				w.Lock(j.ctx, rma.LockExclusive, to, 0), w.Get(buffer.Value(&v), to, rma.At(2)), w.Flush(j.ctx, to))
			v++
			if err = first(err, w.Put(buffer.Value(&v), to, rma.At(2).Notify(0)), w.Unlock(j.ctx, to)); err != nil {
				return err
			}
			sum.Add(1)
		}
		return nil
	})
	words := rma.Slice[int64](wins[to].Memory())
	n, err := wins[to].Notified(0)
	j.must(err)
	if want := sum.Load(); words[1] != want || words[2] != want || n != uint64(2*want) {
		j.t.Errorf("counted %d and %d of %d, and notified %d times", words[1], words[2], want, n)
	}
}

// dupAll makes a duplicate at each rank.
func dupAll(j *job, wins []*rma.Win, info ...rma.Info) []*rma.Win {
	j.t.Helper()
	dups := make([]*rma.Win, len(wins))
	j.each(func(n *rma.Node) (err error) {
		dups[n.Rank()], err = wins[n.Rank()].Dup(j.ctx, info...)
		return err
	})
	return dups
}

// dupGrounds calls test with three ranks that use frames, and with three that have memory in
// common.
func dupGrounds(t *testing.T, test func(t *testing.T, j *job)) {
	for name, hosts := range map[string][]string{"frames": {"", "", ""}, "a host": {"a", "a", "a"}, "two hosts": {"a", "a", "b"}} {
		t.Run(name, func(t *testing.T) { test(t, newJobAt(t, hosts, rma.Limits{})) })
	}
}

// TestDupLocksAreItsOwn has the lock of a window and that of its duplicate held by two ranks at
// once. Each still excludes the other ranks of its own window.
func TestDupLocksAreItsOwn(t *testing.T) {
	dupGrounds(t, func(t *testing.T, j *job) {
		wins := j.windows(64, 8)
		dups := dupAll(j, wins)
		for _, pair := range [][2][]*rma.Win{{wins, dups}, {dups, wins}} {
			held, other := pair[0], pair[1]
			j.must(held[1].Lock(j.ctx, rma.LockExclusive, 0, 0), held[1].Flush(j.ctx, 0)) // which has it granted
			var over atomic.Bool
			waited := make(chan error)
			go func() {
				err := first(held[2].Lock(j.ctx, rma.LockExclusive, 0, 0), held[2].Flush(j.ctx, 0))
				if err == nil && !over.Load() {
					err = errors.New("two ranks have the exclusive lock")
				}
				waited <- first(err, held[2].Unlock(j.ctx, 0))
			}()
			// All count by loads and stores under the other lock, which must exclude them.
			before := atomic.LoadInt64(&rma.Slice[int64](wins[0].Memory())[0])
			j.each(func(n *rma.Node) (err error) {
				w, v := other[n.Rank()], int64(0)
				for i := 0; i < 30 && err == nil; i++ {
					err = first(w.Lock(j.ctx, rma.LockExclusive, 0, 0), w.Get(buffer.Value(&v), 0, rma.At(0)), w.Flush(j.ctx, 0))
					v++
					err = first(err, w.Put(buffer.Value(&v), 0, rma.At(0)), w.Unlock(j.ctx, 0))
				}
				return err
			})
			if got := atomic.LoadInt64(&rma.Slice[int64](wins[0].Memory())[0]); got != before+90 {
				t.Errorf("counted %d, want %d", got-before, 90)
			}
			over.Store(true)
			j.must(held[1].Unlock(j.ctx, 0), <-waited)
		}
		freeAll(j, wins)
		freeAll(j, dups)
	})
}

// TestDupEpochsAreItsOwn has an epoch of one kind open on a window, and makes those of all kinds
// on its duplicate.
func TestDupEpochsAreItsOwn(t *testing.T) {
	dupGrounds(t, func(t *testing.T, j *job) {
		j.each(func(n *rma.Node) error {
			w, err := rma.Allocate(j.ctx, n.World(), 64, 8)
			if err != nil {
				return err
			}
			to, v := others(n, false), int64(n.Rank())
			next := (n.Rank() + 1) % n.Size()
			inside := []struct {
				name       string
				begin, end func(w *rma.Win) error
			}{
				{"fence", func(w *rma.Win) error { return w.Fence(j.ctx, 0) }, func(w *rma.Win) error { return w.Fence(j.ctx, rma.ModeNoSucceed) }},
				{"post, start", func(w *rma.Win) error { return first(w.Post(j.ctx, to, 0), w.Start(j.ctx, to, 0)) },
					func(w *rma.Win) error { return first(w.Complete(j.ctx), w.Wait(j.ctx)) }},
				{"lock all", func(w *rma.Win) error { return w.LockAll(j.ctx, 0) }, func(w *rma.Win) error { return w.UnlockAll(j.ctx) }},
			}
			for _, outer := range inside {
				if err := first(outer.begin(w), w.Put(buffer.Value(&v), next, rma.At(0))); err != nil {
					return fmt.Errorf("%s: %w", outer.name, err)
				}
				d, err := w.Dup(j.ctx)
				if err != nil {
					return fmt.Errorf("Dup in %s: %w", outer.name, err)
				}
				for _, inner := range inside {
					if err := d.Put(buffer.Value(&v), next, rma.At(1)); !errors.Is(err, rma.ErrRMASync) {
						return fmt.Errorf("outside of an epoch of the duplicate, in %s of the window: %w", outer.name, err)
					}
					if err := first(inner.begin(d), d.Put(buffer.Value(&v), next, rma.At(1)), inner.end(d),
						n.World().Barrier(j.ctx)); err != nil {
						return fmt.Errorf("%s in %s: %w", inner.name, outer.name, err)
					}
				}
				if err := first(d.Free(j.ctx), w.Put(buffer.Value(&v), next, rma.At(2)), outer.end(w), n.World().Barrier(j.ctx)); err != nil {
					return fmt.Errorf("the end of %s: %w", outer.name, err)
				}
			}
			return w.Free(j.ctx)
		})
	})
}

// TestDupsFenceAtOnce has goroutines with a duplicate each, which make fence epochs in their own
// time, in a part of the memory each.
func TestDupsFenceAtOnce(t *testing.T) {
	const goroutines, epochs = 3, 40
	dupGrounds(t, func(t *testing.T, j *job) {
		wins := j.windows(8*goroutines, 8)
		dups := make([][]*rma.Win, goroutines)
		for i := range dups {
			dups[i] = dupAll(j, wins)
		}
		freeAll(j, wins)
		j.each(func(n *rma.Node) error {
			next, last := (n.Rank()+1)%n.Size(), (n.Rank()+n.Size()-1)%n.Size()
			errs := make([]error, goroutines)
			var all sync.WaitGroup
			for i := range goroutines {
				w := dups[i][n.Rank()]
				all.Go(func() {
					word := &rma.Slice[int64](w.Memory())[i]
					err := w.Fence(j.ctx, 0)
					for e := int64(0); e < epochs && err == nil; e++ {
						v, want := 100*e+int64(n.Rank()), 100*e+int64(last)
						if err = first(w.Put(buffer.Value(&v), next, rma.At(int64(i))), w.Fence(j.ctx, 0)); err == nil && *word != want {
							err = fmt.Errorf("goroutine %d, epoch %d: %d, want %d", i, e, *word, want)
						}
						err = first(err, w.Fence(j.ctx, 0)) // the word was read
					}
					errs[i] = first(err, w.Fence(j.ctx, rma.ModeNoSucceed))
				})
			}
			all.Wait()
			for i := range goroutines {
				errs = append(errs, dups[i][n.Rank()].Free(j.ctx))
			}
			return errors.Join(errs...)
		})
	})
}

// TestDupHints gives duplicates hints of their own.
func TestDupHints(t *testing.T) {
	dupGrounds(t, func(t *testing.T, j *job) {
		wins := j.windowsOf(func(rank int) (int, int) { return 64 + 8*rank, 8 }, rma.Info{"accumulate_ordering": "none", "mpi_minimum_memory_alignment": "65536"})
		key := rma.NewKeyval[int](nil)
		j.must(key.Set(wins[1], 1), wins[1].SetName("a name"))
		dups := dupAll(j, wins, rma.NoLocks(), rma.MinAlignment(8), rma.SameOp())
		if _, ok := key.Get(dups[1]); ok || dups[1].Name() != "" {
			t.Errorf("the duplicate has an attribute, or the name %q", dups[1].Name())
		}
		for key, want := range map[string]string{"no_locks": "true", "accumulate_ordering": "none", "mpi_minimum_memory_alignment": "65536", "accumulate_ops": "same_op"} {
			if got := dups[1].Info()[key]; got != want {
				t.Errorf("%s is %q, want %q", key, got, want)
			}
		}
		if err := dups[1].Lock(j.ctx, rma.LockShared, 0, 0); !errors.Is(err, rma.ErrRMASync) {
			t.Errorf("a lock of a window without locks: %v", err)
		}
		j.must(wins[1].Lock(j.ctx, rma.LockShared, 0, 0), wins[1].Unlock(j.ctx, 0))
		freeAll(j, dups)

		// One rank says what is wrong, and Dup fails at all, with the error handler told.
		for _, test := range []struct {
			info  rma.Info
			class rma.Class
		}{
			{rma.Info{"no_locks": "perhaps"}, rma.ErrArg},
			{rma.Info{"xdprma_access": "all; 3: none"}, rma.ErrArg},
			{rma.SameSize(), rma.ErrSize},
		} {
			var told atomic.Int32
			for r, err := range j.outcomes(func(n *rma.Node) error {
				wins[n.Rank()].SetErrhandler(func(*rma.Win, error) { told.Add(1) })
				info := rma.Info(nil)
				if n.Rank() == 1 {
					info = test.info
				}
				_, err := wins[n.Rank()].Dup(j.ctx, info)
				return err
			}) {
				if !errors.Is(err, test.class) {
					t.Errorf("info %v: rank %d got %v", test.info, r, err)
				}
			}
			if n := told.Load(); n != 3 {
				t.Errorf("info %v: %d handlers were told", test.info, n)
			}
		}

		// The rights of a duplicate are those of the window, or what the owner says instead.
		limited := make([]*rma.Win, 3)
		j.each(func(n *rma.Node) (err error) {
			limited[n.Rank()], err = wins[n.Rank()].Dup(j.ctx, rma.Access(rma.MayRead|rma.MayLock, nil))
			return err
		})
		again, v := dupAll(j, limited), int64(1)
		for _, w := range []*rma.Win{limited[0], again[0]} {
			j.must(w.LockAll(j.ctx, 0), w.Put(buffer.Value(&v), 1, rma.At(0)))
			if err := w.Flush(j.ctx, 1); !errors.Is(err, rma.ErrAccess) {
				t.Errorf("a put by a rank that may read: %v", err)
			}
			_ = w.UnlockAll(j.ctx)
		}
		j.must(wins[0].LockAll(j.ctx, 0), wins[0].Put(buffer.Value(&v), 1, rma.At(0)), wins[0].UnlockAll(j.ctx))
		for _, all := range [][]*rma.Win{wins, again, limited} {
			freeAll(j, all)
		}
	})
}

// TestDupInCheckingMode checks a duplicate, and not the window.
func TestDupInCheckingMode(t *testing.T) {
	dupGrounds(t, func(t *testing.T, j *job) {
		wins := j.windows(64, 8)
		dups := dupAll(j, wins, rma.CheckConflicts())
		for _, all := range [][]*rma.Win{wins, dups} {
			v := int64(1)
			for _, w := range all[1:] {
				j.must(w.LockAll(j.ctx, 0), w.Put(buffer.Value(&v), 0, rma.At(0)), w.FlushLocal(j.ctx, 0))
			}
			for _, w := range all[1:] {
				j.must(w.UnlockAll(j.ctx))
			}
		}
		if _, n := wins[0].Conflicts(); n != 0 {
			t.Errorf("%d conflicts of the window", n)
		}
		if _, n := dups[0].Conflicts(); n != 1 {
			t.Errorf("%d conflicts of the duplicate", n)
		}
		if s, err := dups[0].SharedQuery(1); err != nil || s.Memory != nil {
			t.Errorf("a checked duplicate is in memory that others map: %v", err)
		}
		freeAll(j, wins)
		freeAll(j, dups)
	})
}

// TestDupOfElements duplicates a window of elements.
func TestDupOfElements(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	j.each(func(n *rma.Node) error {
		w, err := rma.AllocateOf[int32](j.ctx, n.World(), 4)
		if err != nil {
			return err
		}
		d, err := w.Dup(j.ctx, rma.NoLocks())
		if err != nil {
			return err
		}
		next := 1 - n.Rank()
		err = first(d.Fence(j.ctx, 0), d.Put([]int32{7, 8}, next, rma.At(1)), d.Fence(j.ctx, rma.ModeNoSucceed))
		if m := w.Memory(); err == nil && !slices.Equal(m, []int32{0, 7, 8, 0}) {
			err = fmt.Errorf("memory %v", m)
		}
		if err = first(err, w.Free(j.ctx), d.Free(j.ctx)); err != nil {
			return err
		}
		if d, err = w.Dup(j.ctx); !errors.Is(err, rma.ErrWin) || d.Win != nil {
			return fmt.Errorf("Dup of a window that was freed: %v", err)
		}
		return nil
	})
}

// TestDupAttached attaches memory to a dynamic window and to its duplicate, which have it both.
func TestDupAttached(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	wins := j.dynamics()
	dups := dupAll(j, wins)
	one, two := make([]int64, 1), make([]int64, 1)
	j.must(wins[1].Attach(rma.BytesOf(one)), dups[1].Attach(rma.BytesOf(two)))
	if err := dups[1].Attach(rma.BytesOf(one)); !errors.Is(err, rma.ErrRMAAttach) {
		t.Errorf("attached twice: %v", err)
	}
	put := func(w *rma.Win, to []int64, v int64) error {
		err := first(w.LockAll(j.ctx, 0), w.Put(buffer.Value(&v), 1, rma.At(rma.Address(buffer.Of(to)))))
		return errors.Join(err, w.UnlockAll(j.ctx))
	}
	j.must(put(wins[0], two, 2), put(dups[0], one, 1), wins[1].Sync())
	if one[0] != 1 || two[0] != 2 {
		t.Errorf("got %d and %d", one[0], two[0])
	}
	j.must(dups[1].Detach(rma.BytesOf(one)))
	if err := put(wins[0], one, 3); !errors.Is(err, rma.ErrRange) {
		t.Errorf("detached: %v", err)
	}
	freeAll(j, wins)
	j.must(put(dups[0], two, 4), dups[1].Sync(), dups[1].Detach(rma.BytesOf(two)))
	if two[0] != 4 {
		t.Errorf("got %d", two[0])
	}
	freeAll(j, dups)
}
