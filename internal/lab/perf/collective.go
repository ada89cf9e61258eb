package perf

import (
	"encoding/binary"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/rma"
)

func barrierOnce(r *rank, _ Point) pass {
	return func() error { return r.node.World().Barrier(r.ctx) }
}

func allreduceOnce(r *rank, p Point) pass {
	out, in := make([]int64, p.Bytes/8), make([]int64, p.Bytes/8)
	return func() error { return comm.Allreduce(r.ctx, r.node.World(), out, in, datatype.Sum) }
}

// putToAll puts to every other rank, and flushes them all at once.
func putToAll(r *rank, p Point) pass {
	origin := buffer.Bytes(r.out[:p.Bytes])
	return func() error {
		for i := 1; i < r.size; i++ {
			if err := r.win.Put(origin, (r.id+i)%r.size, rma.At(0)); err != nil {
				return err
			}
		}
		return r.win.FlushAll(r.ctx)
	}
}

// together makes a test out of passes that all ranks make as many of. A pass is
// ops operations of all ranks, 0 meaning a put of every rank to every other.
func together(make func(*rank, Point) pass, ops int) func(*rank, Point) error {
	return func(r *rank, p Point) error {
		return r.inEpoch(func() error {
			each := uint64(ops)
			if ops == 0 {
				each = uint64(r.size * (r.size - 1))
			}
			if err := r.inStep(make(r, p), each); err != nil {
				return err
			}
			return r.gather()
		})
	}
}

// bothWays makes a test out of windows that two ranks issue to each other at the
// same time. The time is that until both are through.
func bothWays(make func(*rank, Point) pass) func(*rank, Point) error {
	return func(r *rank, p Point) error {
		return r.inEpoch(func() error { return r.inStep(make(r, p), uint64(2*p.Window)) })
	}
}

// oneWay makes a test out of windows of rank 0 that the other rank takes part in.
func oneWay(make func(*rank, Point) pass) func(*rank, Point) error {
	return func(r *rank, p Point) error { return r.inStep(make(r, p), uint64(p.Window)) }
}

func (r *rank) inEpoch(f func() error) error {
	if err := r.win.LockAll(r.ctx, 0); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return r.win.UnlockAll(r.ctx)
}

// inStep warms up, agrees with the other ranks on a number of passes, and times
// them from a barrier to a barrier.
func (r *rank) inStep(step pass, ops uint64) error {
	world := r.node.World()
	start := time.Now()
	for range warmUpPasses {
		if err := step(); err != nil {
			return err
		}
	}
	n, err := r.agree(time.Since(start) / warmUpPasses)
	if err != nil {
		return err
	}
	if err := world.Barrier(r.ctx); err != nil {
		return err
	}
	start = time.Now()
	if err := r.loop(step, ops, 1<<62, n, 0, r.record); err != nil {
		return err
	}
	if err := world.Barrier(r.ctx); err != nil {
		return err
	}
	r.sample.Elapsed = time.Since(start)
	return nil
}

// agree returns rank 0's choice of a number of passes, given the time of one.
func (r *rank) agree(each time.Duration) (int, error) {
	n := r.plan.Iterations
	if n == 0 {
		n = int(min(max(r.duration/max(each, 1), 1), mostPasses))
	}
	b, err := r.node.World().BcastBytes(r.ctx, binary.LittleEndian.AppendUint64(nil, uint64(n)), 0)
	if err != nil {
		return 0, err
	}
	return int(binary.LittleEndian.Uint64(b)), nil
}

// gather merges the latencies of all ranks at rank 0.
func (r *rank) gather() error {
	for root := 1; root < r.size; root++ {
		var mine []byte
		if root == r.id {
			var err error
			if mine, err = r.histogram.encode(); err != nil {
				return err
			}
		}
		b, err := r.node.World().BcastBytes(r.ctx, mine, root)
		if err != nil {
			return err
		}
		if r.id == 0 {
			if err := r.histogram.merge(b); err != nil {
				return err
			}
		}
	}
	return nil
}
