package main

import (
	"context"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

// Each rank's window is a deque of tasks that others may steal, and at rank 0 a tally.
const (
	tallyAt = 0 // at rank 0: ranks that are busy, and tasks in deques
	stateAt = 1 // the numbers of the first task and of the one after the last, in 32 bits each
	tasksAt = 2
	room    = 1024 // tasks that a deque holds: a ring
)

// deques are those of all ranks. They are accessed by atomic calls alone, those of the accumulate
// family, because several ranks may do so at once.
type deques struct {
	win    rma.WinOf[uint64]
	rank   int
	ranks  int
	victim int // the last that had something
}

func open(ctx context.Context, c *comm.Comm) (*deques, error) {
	win, err := rma.AllocateOf[uint64](ctx, c, tasksAt+room)
	if err != nil {
		return nil, err
	}
	return &deques{win: win, rank: c.Rank(), ranks: c.Size()}, win.LockAll(ctx)
}

func (d *deques) close(ctx context.Context) error {
	if err := d.win.UnlockAll(ctx); err != nil {
		return err
	}
	return d.win.Free(ctx)
}

// begin counts a rank that is busy from the start. No rank goes on before all are counted.
func (d *deques) begin(ctx context.Context, busy bool) error {
	if busy {
		if err := d.tally(ctx, 1); err != nil {
			return err
		}
	}
	return d.win.Comm().Barrier(ctx)
}

// tally adds to the tally, which is never less than the busy ranks and the tasks in deques. It
// returns when that has happened.
func (d *deques) tally(ctx context.Context, n int) error {
	_, err := d.win.Fetch(ctx, uint64(n), 0, rma.At(tallyAt), rma.Sum)
	return err
}

// over reports whether no rank has a task, and none will get one.
func (d *deques) over(ctx context.Context) (bool, error) {
	n, err := d.win.Load(ctx, 0, rma.At(tallyAt))
	return n == 0, err
}

func bounds(state uint64) (first, end uint32) { return uint32(state >> 32), uint32(state) }

// publish lets others steal tasks, if there is room. They are counted before anybody sees them.
// Only the owner moves the end, and nobody reads beyond it, so the new tasks overwrite nothing.
func (d *deques) publish(ctx context.Context, tasks []uint64) (bool, error) {
	state, err := d.win.Load(ctx, d.rank, rma.At(stateAt))
	first, end := bounds(state)
	if err != nil || int(end-first)+len(tasks) > room {
		return false, err
	}
	if err := d.tally(ctx, len(tasks)); err != nil {
		return false, err
	}
	at := int(end % room) // a multiple of the batch: they do not wrap around
	if err := d.win.Accumulate(tasks, d.rank, rma.At(tasksAt+at), rma.Replace); err != nil {
		return false, err
	}
	if err := d.win.Flush(ctx, d.rank); err != nil {
		return false, err
	}
	for {
		next := uint64(first)<<32 | uint64(end+uint32(len(tasks)))
		former, swapped, err := d.win.CompareAndSwap(ctx, state, next, d.rank, rma.At(stateAt))
		if swapped || err != nil {
			return swapped, err
		}
		state = former // a thief was here
		first, _ = bounds(state)
	}
}

// steal takes half of the tasks that a rank has published. They are read before they are taken:
// they are right if nobody has moved the state meanwhile. The caller becomes busy.
func (d *deques) steal(ctx context.Context, from int) ([]uint64, error) {
	state, err := d.win.Load(ctx, from, rma.At(stateAt))
	first, end := bounds(state)
	n := min(int(end-first+1)/2, room-int(first%room))
	if err != nil || n == 0 {
		return nil, err
	}
	tasks := make([]uint64, n)
	if err := d.win.GetAccumulate(nil, tasks, from, rma.At(tasksAt+int(first%room)), rma.NoOp); err != nil {
		return nil, err
	}
	if err := d.win.Flush(ctx, from); err != nil {
		return nil, err
	}
	next := uint64(first+uint32(n))<<32 | uint64(end)
	_, swapped, err := d.win.CompareAndSwap(ctx, state, next, from, rma.At(stateAt))
	if !swapped || err != nil {
		return nil, err
	}
	return tasks, d.tally(ctx, 1-n) // until now they were counted in the deque
}

// stealAround tries all ranks once, this one first and then the last that had something.
func (d *deques) stealAround(ctx context.Context) ([]uint64, error) {
	if tasks, err := d.steal(ctx, d.rank); len(tasks) > 0 || err != nil {
		return tasks, err
	}
	for i := range d.ranks {
		from := (d.victim + i) % d.ranks
		if from == d.rank {
			continue
		}
		if tasks, err := d.steal(ctx, from); len(tasks) > 0 || err != nil {
			d.victim = from
			return tasks, err
		}
	}
	return nil, nil
}
