package main

import (
	"context"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

// The processes of examples that have two.
const (
	processA = 0
	processB = 1
)

// startPutComplete is example 11.4. Complete returns once the put has completed at
// the origin; it has at the target when Wait returns there. The chapter lets start,
// the put or complete wait for the post, or none of them: a program may rely on the
// three to come to an end once the window is posted, and on nothing before. (Here
// none of them waits.)
func startPutComplete(ctx context.Context, c *comm.Comm) {
	win, err := rma.Allocate(ctx, c, 8, 8, nil)
	check(err)
	x := int64(4)
	switch c.Rank() {
	case processA:
		check(win.Start(ctx, []int{processB}, 0))
		check(win.Put(buffer.Value(&x), processB, rma.At(0)))
		check(win.Complete(ctx))
	case processB:
		check(win.Post(ctx, []int{processA}, 0))
		check(win.Wait(ctx))
		equal(rma.Slice[int64](win.Memory())[0], 4)
	}
	check(win.Free(ctx))
}

// lockPutUnlock is example 11.5. Unlock returns once the put has completed at the
// origin and at the target: each rank finds its value there afterwards, though the
// target does nothing for it. A lock of the own window is held when Lock returns,
// for it may protect loads and stores: the last rank to come finds what the others
// have added.
func lockPutUnlock(ctx context.Context, c *comm.Comm) {
	win, err := rma.Allocate(ctx, c, (1+c.Size())*8, 8, nil)
	check(err)
	mine, found := int64(c.Rank()+1), int64(0)
	at := rma.At(int64(1 + c.Rank()))

	check(win.Lock(ctx, rma.LockExclusive, processB, 0))
	check(win.Put(buffer.Value(&mine), processB, at))
	check(win.Unlock(ctx, processB))

	check(win.Lock(ctx, rma.LockShared, processB, 0))
	check(win.Get(buffer.Value(&found), processB, at))
	check(win.Unlock(ctx, processB))
	equal(found, mine)

	// All ranks add to one element by reading and writing it under exclusive locks.
	// The owner does so with loads and stores.
	for range 5 {
		check(win.Lock(ctx, rma.LockExclusive, processB, 0))
		if c.Rank() == processB {
			rma.Slice[int64](win.Memory())[0]++
		} else {
			check(win.Get(buffer.Value(&found), processB, rma.At(0)))
			check(win.Flush(ctx, processB))
			found++
			check(win.Put(buffer.Value(&found), processB, rma.At(0)))
		}
		check(win.Unlock(ctx, processB))
	}
	check(c.Barrier(ctx))
	check(win.Lock(ctx, rma.LockShared, processB, 0))
	check(win.Get(buffer.Value(&found), processB, rma.At(0)))
	check(win.Unlock(ctx, processB))
	equal(found, int64(5*c.Size()))
	check(win.Free(ctx))
}

// x makes a window with one element on each rank, in memory of the Go heap, whose
// races the race detector would report.
func x(ctx context.Context, c *comm.Comm) (*rma.Win, *int64) {
	mem := make([]int64, 1)
	win, err := rma.Create(ctx, c, rma.BytesOf(mem), 8, nil)
	check(err)
	return win, &mem[0]
}

// storeUnderLock is example 11.6 (rule 5 of section 11.7): B's store stands between
// its own Lock and Unlock, which hand it over to the copy that others get. After
// the barrier A gets what was stored.
func storeUnderLock(ctx context.Context, c *comm.Comm) {
	win, x := x(ctx, c)
	if c.Rank() == processB {
		check(win.Lock(ctx, rma.LockExclusive, processB, 0))
		*x = 6
		check(win.Unlock(ctx, processB))
	}
	check(c.Barrier(ctx))
	if c.Rank() == processA {
		got := int64(0)
		check(win.Lock(ctx, rma.LockExclusive, processB, 0))
		check(win.Get(buffer.Value(&got), processB, rma.At(0)))
		check(win.Unlock(ctx, processB))
		equal(got, 6)
	}
	check(win.Free(ctx))
}

// storeBeforeBarrier is example 11.7. As printed there, B stores and then enters a
// barrier, and A gets after it. The standard does not guarantee that this finds the store, not even
// in the unified model: the chapter's barrier synchronises processes, not memory.
// Sync between the store and the barrier, inside an epoch, makes it certain.
// (Barrier of this library synchronises memory as well; docs/memory-model.md.)
func storeBeforeBarrier(ctx context.Context, c *comm.Comm) {
	win, x := x(ctx, c)
	check(win.LockAll(ctx, 0))
	if c.Rank() == processB {
		*x = 7
		check(win.Sync())
	}
	check(c.Barrier(ctx))
	if c.Rank() == processA {
		got := int64(0)
		check(win.Get(buffer.Value(&got), processB, rma.At(0)))
		check(win.FlushLocal(ctx, processB))
		equal(got, 7)
	}
	check(win.UnlockAll(ctx))
	check(win.Free(ctx))
}

// loadUnderLock is example 11.8 (rule 6): the put is complete at B when A's Unlock
// returns, and the barrier tells B so. B's own Lock makes it visible to B's loads.
func loadUnderLock(ctx context.Context, c *comm.Comm) {
	win, x := x(ctx, c)
	if c.Rank() == processA {
		value := int64(8)
		check(win.Lock(ctx, rma.LockExclusive, processB, 0))
		check(win.Put(buffer.Value(&value), processB, rma.At(0)))
		check(win.Unlock(ctx, processB))
	}
	check(c.Barrier(ctx))
	if c.Rank() == processB {
		check(win.Lock(ctx, rma.LockExclusive, processB, 0))
		equal(*x, 8)
		check(win.Unlock(ctx, processB))
	}
	check(win.Free(ctx))
}

// loadAfterBarrier is example 11.9. As printed there, A puts and flushes, both enter
// a barrier, and B loads. The load is not guaranteed to see the put: nothing keeps
// it behind the chapter's barrier. Sync after the barrier does.
func loadAfterBarrier(ctx context.Context, c *comm.Comm) {
	win, x := x(ctx, c)
	check(win.LockAll(ctx, 0))
	if c.Rank() == processA {
		value := int64(9)
		check(win.Put(buffer.Value(&value), processB, rma.At(0)))
		check(win.Flush(ctx, processB))
	}
	check(c.Barrier(ctx))
	if c.Rank() == processB {
		check(win.Sync())
		equal(*x, 9)
	}
	check(win.UnlockAll(ctx))
	check(win.Free(ctx))
}

// storeBeforeLock is example 11.10. As printed there, B stores and then locks its
// window, both pass a barrier, and A gets before B unlocks. It is not guaranteed to
// find the store: Lock makes others' updates visible to the owner, not the owner's
// to others; Unlock does that, which here comes too late. Sync before the barrier
// makes it certain.
func storeBeforeLock(ctx context.Context, c *comm.Comm) {
	win, x := x(ctx, c)
	if c.Rank() == processB {
		*x = 10
		check(win.Lock(ctx, rma.LockShared, processB, 0))
		check(win.Sync())
	}
	check(c.Barrier(ctx))
	if c.Rank() == processA {
		got := int64(0)
		check(win.Lock(ctx, rma.LockShared, processB, 0))
		check(win.Get(buffer.Value(&got), processB, rma.At(0)))
		check(win.Unlock(ctx, processB))
		equal(got, 10)
	}
	if c.Rank() == processB {
		check(win.Unlock(ctx, processB))
	}
	check(win.Free(ctx))
}

// updateWhileExposed is example 11.11. As printed there, A stores X while its window
// is exposed, and B gets it after Wait and a barrier. It is not guaranteed to find
// the store, because neither Complete nor Wait of the owner hands stores over to
// others. A put to the own window in place of the store does. The store of Y before
// Post is visible to others in any case.
func updateWhileExposed(ctx context.Context, c *comm.Comm) {
	mem := make([]int64, 2) // X and Y
	win, err := rma.Create(ctx, c, rma.BytesOf(mem), 8, nil)
	check(err)
	value := int64(11)
	switch c.Rank() {
	case processA:
		mem[1] = 12
		check(win.Post(ctx, []int{processA, processB}, 0))
		check(win.Start(ctx, []int{processA}, 0))
		check(win.Put(buffer.Value(&value), processA, rma.At(0)))
		check(win.Complete(ctx))
		check(win.Wait(ctx))
		equal(mem[0], 11) // from here on, not before
	case processB:
		early := int64(0) // Y may be read while A is exposed
		check(win.Start(ctx, []int{processA}, 0))
		check(win.Get(buffer.Value(&early), processA, rma.At(1)))
		check(win.Complete(ctx))
		equal(early, 12)
	}
	check(c.Barrier(ctx))
	if c.Rank() == processB {
		got := make([]int64, 2)
		check(win.Lock(ctx, rma.LockExclusive, processA, 0))
		check(win.Get(buffer.Of(got[:1]), processA, rma.At(0)))
		check(win.Get(buffer.Of(got[1:]), processA, rma.At(1)))
		check(win.Unlock(ctx, processA))
		equal([2]int64(got), [2]int64{11, 12})
	}
	check(win.Free(ctx))
}

// readWhileExposed is example 11.12. As printed there, A has put X, and B loads it
// between its Start and Complete. The load is not guaranteed to see the put: neither
// Post nor Start of the owner brings others' updates to its loads. A get from the
// own window does, and so does a load after Wait.
func readWhileExposed(ctx context.Context, c *comm.Comm) {
	win, x := x(ctx, c)
	if c.Rank() == processA {
		value := int64(12)
		check(win.Lock(ctx, rma.LockExclusive, processB, 0))
		check(win.Put(buffer.Value(&value), processB, rma.At(0)))
		check(win.Unlock(ctx, processB))
	}
	check(c.Barrier(ctx))
	if c.Rank() == processB {
		got := int64(0)
		check(win.Post(ctx, []int{processB}, 0))
		check(win.Start(ctx, []int{processB}, 0))
		check(win.Get(buffer.Value(&got), processB, rma.At(0)))
		check(win.Complete(ctx))
		equal(got, 12)
		check(win.Wait(ctx))
		equal(*x, 12)
	}
	check(win.Free(ctx))
}
