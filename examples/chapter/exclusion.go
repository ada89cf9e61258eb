package main

import (
	"context"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

const rounds = 10 // times that each process enters a critical region

// cell is one element of a process's window. Its methods must be called in an epoch;
// values that they return are there, and what they write is complete at the target.
type cell struct {
	ctx  context.Context
	win  *rma.Win
	rank int
	at   rma.Location
}

// load reads atomically.
func (c cell) load() (value int64) {
	check(c.win.GetAccumulate(buffer.Buffer{}, buffer.Value(&value), c.rank, c.at, rma.NoOp))
	check(c.win.Flush(c.ctx, c.rank))
	return value
}

// store writes atomically.
func (c cell) store(value int64) { c.combine(value, rma.Replace) }

// combine updates atomically.
func (c cell) combine(value int64, op rma.Op) {
	check(c.win.Accumulate(buffer.Value(&value), c.rank, c.at, op))
	check(c.win.Flush(c.ctx, c.rank))
}

// swap replaces old by value, if old is there, and returns what was there.
func (c cell) swap(value, old int64) (found int64) {
	check(c.win.CompareAndSwap(buffer.Value(&value), buffer.Value(&old), buffer.Value(&found), c.rank, c.at))
	check(c.win.Flush(c.ctx, c.rank))
	return found
}

// increment adds one by reading and writing. Additions are lost unless one process
// at a time does it.
func (c cell) increment() {
	value := int64(0)
	check(c.win.Get(buffer.Value(&value), c.rank, c.at))
	check(c.win.Flush(c.ctx, c.rank))
	value++
	check(c.win.Put(buffer.Value(&value), c.rank, c.at))
	check(c.win.Flush(c.ctx, c.rank))
}

// semaphore is example 11.18: X at A starts with the number of processes. Each takes
// one off and waits until it is zero, so that none goes on before all have come.
// Sync hands A's store of the first value over to the others; later X is only
// accessed by accumulates, which need no such care, not even at A itself.
func semaphore(ctx context.Context, c *comm.Comm) {
	win, err := rma.Allocate(ctx, c, 2*8, 8, nil)
	check(err)
	x, come := cell{ctx, win, processA, rma.At(0)}, cell{ctx, win, processA, rma.At(1)}
	check(win.LockAll(ctx, 0))
	if c.Rank() == processA {
		rma.Slice[int64](win.Memory())[0] = int64(c.Size())
		check(win.Sync())
	}
	check(c.Barrier(ctx))

	come.combine(1, rma.Sum)
	x.combine(-1, rma.Sum)
	for x.load() != 0 {
	}
	equal(come.load(), int64(c.Size()))
	check(win.UnlockAll(ctx))
	check(win.Free(ctx))
}

// peterson is example 11.19: two processes keep each other out of a critical region
// with atomic reads and writes alone. Each says that it wants to enter (X, Y), gives
// way to the other (T), and waits until the other does not want to or gives way.
//
// The printed program enters once. This one does so many times, for which each
// write must be complete before the next step begins; and it flushes each read before
// it uses the value, which the printed one leaves out before its loop.
func peterson(ctx context.Context, c *comm.Comm) {
	win, err := rma.Allocate(ctx, c, 3*8, 8, nil)
	check(err)
	check(win.LockAll(ctx, 0))
	if c.Rank() <= processB {
		other := processB - c.Rank()
		mine, theirs := cell{ctx, win, c.Rank(), rma.At(0)}, cell{ctx, win, other, rma.At(0)}
		turn, counter := cell{ctx, win, processA, rma.At(1)}, cell{ctx, win, processA, rma.At(2)}
		for range rounds {
			mine.store(1)
			turn.store(int64(other))
			for theirs.load() == 1 && turn.load() == int64(other) {
			}
			counter.increment() // the critical region
			mine.store(0)
		}
	}
	check(win.UnlockAll(ctx))
	check(c.Barrier(ctx))
	if c.Rank() == processA {
		check(win.Lock(ctx, rma.LockShared, processA, 0))
		equal(rma.Slice[int64](win.Memory())[2], 2*rounds)
		check(win.Unlock(ctx, processA))
	}
	check(win.Free(ctx))
}

// spinLock is example 11.20: any number of processes keep each other out of a
// critical region. A rank that swaps A from 0 to 1 has entered, and swaps it back on leaving.
func spinLock(ctx context.Context, c *comm.Comm) {
	win, err := rma.Allocate(ctx, c, 2*8, 8, nil)
	check(err)
	check(win.LockAll(ctx, 0))
	if c.Rank() == processA {
		rma.Slice[int64](win.Memory())[0] = 0
		check(win.Sync()) // or write it by an accumulate, and flush that
	}
	check(c.Barrier(ctx))
	a, counter := cell{ctx, win, processA, rma.At(0)}, cell{ctx, win, processA, rma.At(1)}
	for range rounds {
		for a.swap(1, 0) != 0 {
		}
		counter.increment() // the critical region
		equal(a.swap(0, 1), 1)
	}
	check(win.UnlockAll(ctx))
	check(c.Barrier(ctx))
	if c.Rank() == processA {
		check(win.Lock(ctx, rma.LockShared, processA, 0))
		equal(rma.Slice[int64](win.Memory())[1], int64(rounds*c.Size()))
		check(win.Unlock(ctx, processA))
	}
	check(win.Free(ctx))
}
