package rma_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

// The tests of this file are what docs/memory-model.md promises. Windows that are slices
// of the Go heap are watched by the race detector: with -race they hold the library to
// the order that the page promises, not only to values. Allocated windows are the memory
// that ranks of one host access (TestOverHostMemory).

// inMemories runs f with windows of both kinds, of n elements on each rank.
func inMemories(t *testing.T, ranks, n int, f func(t *testing.T, j *job, wins []*rma.Win, mem [][]int64)) {
	t.Run("created", func(t *testing.T) {
		j := newJob(t, ranks, rma.Limits{})
		wins, mem := j.created(n)
		f(t, j, wins, mem)
	})
	t.Run("allocated", func(t *testing.T) {
		j := newJob(t, ranks, rma.Limits{})
		wins, mem := j.windows(8*n, 8), make([][]int64, ranks)
		for r, w := range wins {
			mem[r] = rma.Slice[int64](w.Memory())
		}
		f(t, j, wins, mem)
	})
}

// created makes a window of n elements on each rank.
func (j *job) created(n int) (wins []*rma.Win, mem [][]int64) {
	j.t.Helper()
	wins, mem = make([]*rma.Win, len(j.nodes)), make([][]int64, len(j.nodes))
	j.each(func(node *rma.Node) (err error) {
		r := node.Rank()
		mem[r] = make([]int64, n)
		wins[r], err = rma.Create(j.ctx, node.World(), rma.BytesOf(mem[r]), 8, nil)
		return err
	})
	return wins, mem
}

// TestLoadsSeePuts has rank 0 put, and complete the puts, and rank 1 load them after
// each of the calls that bring others' updates to the owner. Rank 1 learns outside the
// library that the puts are complete, except where the call itself says so.
func TestLoadsSeePuts(t *testing.T) {
	const elements = 100
	inMemories(t, 2, elements, func(t *testing.T, j *job, wins []*rma.Win, mem [][]int64) {
		origin, owner := wins[0], wins[1]
		lockPut := func(put func() error) error {
			return errors.Join(origin.Lock(j.ctx, rma.LockShared, 1, 0), put(), origin.Unlock(j.ctx, 1))
		}
		startPut := func(put func() error) error {
			return errors.Join(origin.Start(j.ctx, []int{1}, 0), put(), origin.Complete(j.ctx))
		}
		for i, c := range []struct {
			name   string
			put    func(put func() error) error
			before func() error // at the owner, while rank 0 puts
			see    func() error // at the owner, once rank 0 has put
			after  func() error
		}{
			{name: "sync", put: lockPut, see: owner.Sync},
			{name: "lock", put: lockPut,
				see:   func() error { return owner.Lock(j.ctx, rma.LockExclusive, 1, 0) },
				after: func() error { return owner.Unlock(j.ctx, 1) }},
			{name: "lock_all", put: lockPut,
				see:   func() error { return owner.LockAll(j.ctx, 0) },
				after: func() error { return owner.UnlockAll(j.ctx) }},
			{name: "flush", put: func(put func() error) error {
				return errors.Join(origin.LockAll(j.ctx, 0), put(), origin.Flush(j.ctx, 1))
			}, see: owner.Sync, after: func() error { return origin.UnlockAll(j.ctx) }},
			{name: "wait", put: startPut,
				before: func() error { return owner.Post(j.ctx, []int{0}, 0) },
				see:    func() error { return owner.Wait(j.ctx) }},
			{name: "test", put: startPut,
				before: func() error { return owner.Post(j.ctx, []int{0}, 0) },
				see: func() error {
					over, err := owner.Test()
					for ; !over && err == nil; over, err = owner.Test() {
					}
					return err
				}},
			{name: "fence", put: func(put func() error) error {
				return errors.Join(origin.Fence(j.ctx, 0), put(), origin.Fence(j.ctx, rma.ModeNoSucceed))
			}, before: func() error {
				return errors.Join(owner.Fence(j.ctx, 0), owner.Fence(j.ctx, rma.ModeNoSucceed))
			}},
			{name: "barrier", put: func(put func() error) error {
				return errors.Join(lockPut(put), j.nodes[0].World().Barrier(j.ctx))
			}, before: func() error { return j.nodes[1].World().Barrier(j.ctx) }},
			{name: "message", put: func(put func() error) error {
				return errors.Join(lockPut(put), comm.Send(j.ctx, j.nodes[0].World(), []byte{}, 1, 0))
			}, before: func() error {
				_, err := comm.Recv(j.ctx, j.nodes[1].World(), []byte{}, 0, 0)
				return err
			}},
		} {
			values := make([]int64, elements)
			for k := range values {
				values[k] = int64(1000*i + k + 1)
			}
			told := make(chan error)
			go func() { told <- c.put(func() error { return origin.Put(buffer.Of(values), 1, rma.At(0)) }) }()
			do := func(f func() error) {
				if f != nil {
					j.must(f())
				}
			}
			do(c.before)
			if c.see != nil {
				j.must(<-told, c.see())
			}
			for k, v := range values {
				if mem[1][k] != v {
					t.Errorf("after %s: element %d is %d, want %d", c.name, k, mem[1][k], v)
					break
				}
			}
			if c.see == nil {
				j.must(<-told)
			}
			do(c.after)
			j.must(owner.Sync()) // the next puts come after these loads
		}
	})
}

// TestGetsSeeStores has rank 1 store and then make one of the calls that hand the
// owner's stores over to others. Rank 0 gets them once it is told.
func TestGetsSeeStores(t *testing.T) {
	const elements = 100
	inMemories(t, 2, elements, func(t *testing.T, j *job, wins []*rma.Win, mem [][]int64) {
		origin, owner := wins[0], wins[1]
		got := make([]int64, elements)
		get := func() error { return origin.Get(buffer.Of(got), 1, rma.At(0)) }
		lockGet := func() error {
			return errors.Join(origin.Lock(j.ctx, rma.LockShared, 1, 0), get(), origin.Unlock(j.ctx, 1))
		}
		none := func() error { return nil }
		for i, c := range []struct {
			name  string
			begin func() error // before the owner stores
			hand  func() error
			get   func() error
		}{
			{"sync", none, owner.Sync, lockGet},
			{"unlock", func() error { return owner.Lock(j.ctx, rma.LockExclusive, 1, 0) }, func() error { return owner.Unlock(j.ctx, 1) }, lockGet},
			{"unlock_all", func() error { return owner.LockAll(j.ctx, 0) }, func() error { return owner.UnlockAll(j.ctx) }, lockGet},
			{"post", none, func() error { return errors.Join(owner.Post(j.ctx, []int{0}, 0), owner.Wait(j.ctx)) }, func() error {
				return errors.Join(origin.Start(j.ctx, []int{1}, 0), get(), origin.Complete(j.ctx))
			}},
			{"fence", none, func() error { return errors.Join(owner.Fence(j.ctx, 0), owner.Fence(j.ctx, rma.ModeNoSucceed)) }, func() error {
				return errors.Join(origin.Fence(j.ctx, 0), get(), origin.Fence(j.ctx, rma.ModeNoSucceed))
			}},
			{"barrier", none, func() error { return j.nodes[1].World().Barrier(j.ctx) }, func() error {
				return errors.Join(j.nodes[0].World().Barrier(j.ctx), lockGet())
			}},
			{"message", none, func() error { return comm.Send(j.ctx, j.nodes[1].World(), []byte{}, 0, 0) }, func() error {
				_, err := comm.Recv(j.ctx, j.nodes[0].World(), []byte{}, 1, 0)
				return errors.Join(err, lockGet())
			}},
		} {
			j.must(owner.Sync(), c.begin()) // these stores come after the gets before
			for k := range elements {
				mem[1][k] = int64(1000*i + k + 1)
			}
			both := c.name == "post" || c.name == "fence" || c.name == "barrier" || c.name == "message" // these wait for each other
			handed := make(chan error, 1)
			if both {
				go func() { handed <- c.hand() }()
			} else {
				j.must(c.hand())
				handed <- nil
			}
			j.must(c.get(), <-handed)
			for k, v := range got {
				if want := int64(1000*i + k + 1); v != want {
					t.Errorf("after %s: element %d is %d, want %d", c.name, k, v, want)
					break
				}
			}
		}
	})
}

// TestPolling has the owner wait for a flag by loads of sync/atomic, without a call of
// the library, and then load other elements plainly. The flag is set by each of the
// calls that write one element; a flush keeps it behind the data.
func TestPolling(t *testing.T) {
	const elements, rounds = 50, 40
	inMemories(t, 2, 1+elements, func(t *testing.T, j *job, wins []*rma.Win, mem [][]int64) {
		w, flag, data := wins[0], &mem[1][0], mem[1][1:]
		set := func(round int64) error {
			before, old := round-1, int64(0)
			switch round % 3 {
			case 0:
				return w.Put(buffer.Value(&round), 1, rma.At(0))
			case 1:
				return w.Accumulate(buffer.Value(&round), 1, rma.At(0), rma.Replace)
			}
			return w.CompareAndSwap(buffer.Value(&round), buffer.Value(&before), buffer.Value(&old), 1, rma.At(0))
		}
		// The owner says over a channel that it has seen a round, before the next is put.
		seen := make(chan bool)
		done := make(chan error)
		go func() {
			values := make([]int64, elements)
			err := w.LockAll(j.ctx, 0)
			for round := int64(1); round <= rounds && err == nil; round++ {
				for i := range values {
					values[i] = round * int64(i)
				}
				err = errors.Join(w.Put(buffer.Of(values), 1, rma.At(1)), w.Flush(j.ctx, 1), set(round))
				err = errors.Join(err, w.Flush(j.ctx, 1))
				<-seen
			}
			done <- errors.Join(err, w.UnlockAll(j.ctx))
		}()
		for round := int64(1); round <= rounds; round++ {
			for atomic.LoadInt64(flag) != round && j.ctx.Err() == nil {
			}
			for i, v := range data {
				if v != round*int64(i) {
					t.Fatalf("round %d: element %d is %d", round, i, v)
				}
			}
			j.must(wins[1].Sync()) // the next puts come after these loads
			seen <- true
		}
		j.must(<-done)
	})
}

// TestOwnerAtomics mixes sync/atomic at the owner with others' operations on the same
// elements: no addition is lost, and gets of single elements see no value twice gone.
func TestOwnerAtomics(t *testing.T) {
	const times = 300
	inMemories(t, 3, 2, func(t *testing.T, j *job, wins []*rma.Win, mem [][]int64) {
		sum, clock := &mem[0][0], &mem[0][1]
		j.each(func(n *rma.Node) error {
			w := wins[n.Rank()]
			if n.Rank() == 0 {
				for range times {
					atomic.AddInt64(sum, 1)
					atomic.AddInt64(clock, 1)
				}
				return nil
			}
			one, old, last := int64(1), int64(0), int64(0)
			err := w.LockAll(j.ctx, 0)
			for range times {
				now := int64(0)
				err = errors.Join(err, w.FetchAndOp(buffer.Value(&one), buffer.Value(&old), 0, rma.At(0), rma.Sum),
					w.Get(buffer.Value(&now), 0, rma.At(1)), w.Flush(j.ctx, 0))
				if now < last || now > times {
					return fmt.Errorf("the clock went from %d to %d", last, now)
				}
				last = now
			}
			return errors.Join(err, w.UnlockAll(j.ctx))
		})
		if got := atomic.LoadInt64(sum); got != 3*times {
			t.Errorf("the sum is %d, want %d", got, 3*times)
		}
	})
}

// TestOriginBuffers changes buffers as soon as the call has returned, and finds the
// data of the call at the target.
func TestOriginBuffers(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	for _, elements := range []int{1, 100, 50000} {
		wins, mem := j.created(2 * elements)
		w, data := wins[0], make([]int64, elements)
		fill := func(v int64) buffer.Buffer {
			for i := range data {
				data[i] = v
			}
			return buffer.Of(data)
		}
		j.must(w.LockAll(j.ctx, 0), w.Put(fill(1), 1, rma.At(0)))
		j.must(w.Accumulate(fill(2), 1, rma.At(int64(elements)), rma.Sum))
		fill(3)
		j.must(w.UnlockAll(j.ctx), wins[1].Sync())
		for i, v := range mem[1] {
			if want := int64(1 + i/elements); v != want {
				t.Fatalf("%d elements: element %d is %d, want %d", elements, i, v, want)
			}
		}
		j.each(func(n *rma.Node) error { return wins[n.Rank()].Free(j.ctx) })
	}
}

// TestFlushByAnother has goroutines issue gets that another goroutine of the rank
// completes and reads.
func TestFlushByAnother(t *testing.T) {
	const goroutines, rounds = 4, 50
	j := newJob(t, 2, rma.Limits{})
	wins, mem := j.created(goroutines)
	for i := range mem[1] {
		mem[1][i] = int64(10 + i)
	}
	j.must(wins[1].Sync())
	w := wins[0]
	j.must(w.LockAll(j.ctx, 0))
	for range rounds {
		results, errs := make([]int64, goroutines), make([]error, goroutines)
		var issued sync.WaitGroup
		for g := range goroutines {
			issued.Go(func() { errs[g] = w.Get(buffer.Value(&results[g]), 1, rma.At(int64(g))) })
		}
		issued.Wait()
		j.must(errs...)
		j.must(w.Flush(j.ctx, 1))
		for g, v := range results {
			if v != int64(10+g) {
				t.Fatalf("goroutine %d got %d", g, v)
			}
		}
	}
	j.must(w.UnlockAll(j.ctx))
}

// TestElementsAreWhole has two ranks put patterns of equal bytes to the same place
// with nothing to order them, over many frames, while the owner loads with sync/atomic
// and a third rank gets. Every aligned element is of one pattern, all the time, and
// nothing else is touched.
func TestElementsAreWhole(t *testing.T) {
	for _, width := range []int{4, 8} {
		elementsAreWhole(t, newJob(t, 4, rma.Limits{}), width, 500, 1)
	}
}

// elementsAreWhole does so with elements that lie lead elements into the window.
func elementsAreWhole(t *testing.T, j *job, width, elements, lead int) {
	t.Helper()
	const times, untouched = 300, 0xee
	wins := j.windows((elements+2*lead)*width, width)
	mem := wins[0].Memory()
	for i := range mem {
		mem[i] = untouched
	}
	inside := mem[lead*width : (elements+lead)*width]
	clear(inside)
	j.must(wins[0].Sync())
	whole := func(who string, i int, v uint64) error {
		if first := v & 0xff; v != first*0x0101010101010101>>(64-8*width) {
			return fmt.Errorf("%s: element %d of %d bytes is %x", who, i, width, v)
		}
		return nil
	}
	var ended atomic.Int32
	j.each(func(n *rma.Node) (err error) {
		w, data := wins[n.Rank()], make([]byte, elements*width)
		switch n.Rank() {
		case 0:
			for err == nil && ended.Load() < 2 {
				for i := 0; i < elements && err == nil; i++ {
					if width == 8 {
						err = whole("load", i, atomic.LoadUint64(&rma.Slice[uint64](inside)[i]))
					} else {
						err = whole("load", i, uint64(atomic.LoadUint32(&rma.Slice[uint32](inside)[i])))
					}
				}
			}
			return err
		case 1:
			err = w.LockAll(j.ctx, 0)
			for err == nil && ended.Load() < 2 {
				err = errors.Join(w.Get(buffer.Bytes(data), 0, rma.At(int64(lead))), w.Flush(j.ctx, 0))
				for i := 0; i < elements && err == nil; i++ {
					v := uint64(0)
					for _, b := range data[i*width:][:width] {
						v = v<<8 | uint64(b)
					}
					err = whole("get", i, v)
				}
			}
		default:
			defer ended.Add(1)
			err = w.LockAll(j.ctx, 0)
			for k := 0; k < times && err == nil; k++ {
				for i := range data {
					data[i] = byte(n.Rank() + 2*k)
				}
				err = errors.Join(w.Put(buffer.Bytes(data), 0, rma.At(int64(lead))), w.Flush(j.ctx, 0))
			}
		}
		return errors.Join(err, w.UnlockAll(j.ctx))
	})
	j.must(wins[0].Sync())
	for i := range lead * width {
		if mem[i] != untouched || mem[len(mem)-1-i] != untouched {
			t.Errorf("%d bytes: a byte beside the target was written", width)
		}
	}
}

// TestGoroutinesShareEpochs has a goroutine use the epoch that another one of its rank
// has opened. A lock excludes other ranks, not other goroutines: a second one is
// refused.
func TestGoroutinesShareEpochs(t *testing.T) {
	j := newJob(t, 2, rma.Limits{})
	w := j.windows(8, 8)[0]
	j.must(w.Lock(j.ctx, rma.LockExclusive, 1, 0))
	done := make(chan error)
	go func() {
		one, got := int64(1), int64(0)
		again := w.Lock(j.ctx, rma.LockExclusive, 1, 0)
		if !errors.Is(again, rma.ErrRMASync) {
			done <- fmt.Errorf("a second lock: %v", again)
			return
		}
		err := errors.Join(w.Put(buffer.Value(&one), 1, rma.At(0)), w.Flush(j.ctx, 1), w.Get(buffer.Value(&got), 1, rma.At(0)), w.Flush(j.ctx, 1))
		if got != 1 {
			err = errors.Join(err, fmt.Errorf("got %d", got))
		}
		done <- err
	}()
	j.must(<-done, w.Unlock(j.ctx, 1))
}

// TestSharedStores has two ranks store and load in each other's shared memory by turns,
// with a call of Sync at either side of a barrier.
func TestSharedStores(t *testing.T) {
	const elements, rounds = 100, 100
	j := newJobAt(t, []string{"a", "a"}, rma.Limits{})
	wins := sharedWindows(j, nil, 8, 8*elements, 8*elements)
	j.each(func(n *rma.Node) error {
		w, me := wins[n.Rank()], int64(n.Rank())
		theirs, err := w.SharedQuery(1 - n.Rank())
		mine, others := rma.Slice[int64](w.Memory()), rma.Slice[int64](theirs.Memory)
		turn := func() error { return errors.Join(w.Sync(), n.World().Barrier(j.ctx), w.Sync()) }
		for round := int64(0); round < rounds && err == nil; round++ {
			for i := range others {
				others[i] = 2*round + me
			}
			err = turn()
			for i, v := range mine {
				if v != 2*round+1-me {
					return fmt.Errorf("round %d: element %d is %d", round, i, v)
				}
			}
			err = errors.Join(err, turn()) // the next stores come after these loads
		}
		return err
	})
}

// TestNotificationsHandOver has two ranks overwrite each other's word in turn. Each loads its own, and only its
// put that notifies says that it may be overwritten.
func TestNotificationsHandOver(t *testing.T) {
	const rounds = 200
	j := newJob(t, 2, rma.Limits{})
	ways := map[string]func(w rma.WinOf[int64], value int64, other int) error{
		"put that notifies": func(w rma.WinOf[int64], value int64, other int) error {
			return w.PutValue(value, other, rma.At(0).Notify(0))
		},
		"put and notify": func(w rma.WinOf[int64], value int64, other int) error {
			return errors.Join(w.PutValue(value, other, rma.At(0)), w.Notify(j.ctx, other, 0))
		},
	}
	turns := func(w rma.WinOf[int64], rank int, way func(w rma.WinOf[int64], value int64, other int) error) error {
		mem, other, err := w.Memory(), 1-rank, w.LockAll(j.ctx)
		for round := uint64(1); err == nil && round <= rounds; round++ {
			if rank == 1 {
				_, err = w.WaitNotified(j.ctx, 0, round)
			}
			err = errors.Join(err, way(w, mem[0]+1, other), w.FlushLocal(j.ctx, other))
			if err == nil && rank == 0 {
				_, err = w.WaitNotified(j.ctx, 0, round)
			}
		}
		if want := int64(2*rounds - rank); err == nil && mem[0] != want {
			err = fmt.Errorf("the word is %d, want %d", mem[0], want)
		}
		return errors.Join(err, w.UnlockAll(j.ctx), w.Free(j.ctx))
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			j.each(func(n *rma.Node) error {
				created, err := rma.CreateOf(j.ctx, n.World(), make([]int64, 1), rma.Counters(1))
				allocated, err2 := rma.AllocateOf[int64](j.ctx, n.World(), 1, rma.Counters(1))
				if err := errors.Join(err, err2); err != nil {
					return err
				}
				return errors.Join(turns(created, n.Rank(), way), turns(allocated, n.Rank(), way))
			})
		})
	}
}
