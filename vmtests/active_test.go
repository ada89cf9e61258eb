package vmtests

import (
	"fmt"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/rma"
)

// fences has every rank put a block to all ranks and add to a sum of each between
// fences, and read its neighbour's after the next.
func fences(s *self, win *rma.Win) error {
	const n, sumAt = 3000, 2*largest - 8 // the sum is in the last element of a rank's second part
	if s.size < 2 {
		return nil
	}
	data, got, want := make([]byte, n), make([]byte, n), make([]byte, n)
	if err := win.Fence(s.ctx, rma.ModeNoPrecede); err != nil {
		return err
	}
	for round := range 10 {
		for to := range s.size {
			fill(data, s.rank, to, round)
			one := int64(1)
			err := all(
				func() error { return win.Put(buffer.Bytes(data), to, rma.At(int64(s.rank*n))) },
				func() error { return win.Accumulate(buffer.Value(&one), to, rma.At(sumAt), rma.Sum) },
			)
			if err != nil {
				return err
			}
		}
		if err := win.Fence(s.ctx, 0); err != nil {
			return err
		}
		for from := range s.size {
			fill(want, from, s.rank, round)
			if err := same(win.Memory()[from*n:(from+1)*n], want); err != nil {
				return fmt.Errorf("round %d, put by rank %d: %w", round, from, err)
			}
		}
		if sum := rma.Slice[int64](win.Memory()[sumAt : sumAt+8])[0]; sum != int64((round+1)*s.size) {
			return fmt.Errorf("round %d: the sum is %d", round, sum)
		}
		next := (s.rank + 1) % s.size
		if err := all(
			func() error { return win.Get(buffer.Bytes(got), next, rma.At(int64(s.rank*n))) },
			func() error { return win.Fence(s.ctx, rma.ModeNoPut) },
		); err != nil {
			return err
		}
		fill(want, s.rank, next, round)
		if err := same(got, want); err != nil {
			return fmt.Errorf("round %d, got from rank %d: %w", round, next, err)
		}
	}
	return win.Fence(s.ctx, rma.ModeNoSucceed)
}

// postStart passes blocks round the ring of ranks: each rank exposes its window to
// the one before it, and puts to the one after it, often before that has posted.
func postStart(s *self, win *rma.Win) error {
	const n = 5000
	before, after := []int{(s.rank + s.size - 1) % s.size}, []int{(s.rank + 1) % s.size}
	data, want := make([]byte, n), make([]byte, n)
	for round := range 40 {
		fill(data, s.rank, after[0], round)
		old, one := int64(-1), int64(1)
		err := all(
			func() error { return win.Start(s.ctx, after, 0) },
			func() error { return win.Put(buffer.Bytes(data), after[0], rma.At(0)) },
			func() error { return win.Post(s.ctx, before, 0) },
			func() error {
				return win.FetchAndOp(buffer.Value(&one), buffer.Value(&old), after[0], rma.At(largest-8), rma.Sum)
			},
			func() error { return win.Complete(s.ctx) },
			func() error { return win.Wait(s.ctx) },
		)
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if old != int64(round) {
			return fmt.Errorf("round %d: fetched %d", round, old)
		}
		fill(want, before[0], s.rank, round)
		if err := same(win.Memory()[:n], want); err != nil {
			return fmt.Errorf("round %d, put by rank %d: %w", round, before[0], err)
		}
	}
	return nil
}

// requests keeps gets of a target's parts under way, and takes them as they come.
func requests(s *self, win *rma.Win) error {
	const n, parts = 2000, 16
	target := (s.rank + 1) % s.size
	for i := range parts {
		fill(win.Memory()[i*n:(i+1)*n], s.rank, i, n)
	}
	if err := s.world.Barrier(s.ctx); err != nil {
		return err
	}
	if err := win.LockAll(s.ctx, 0); err != nil {
		return err
	}
	got, want := make([]byte, parts*n), make([]byte, n)
	pending := make([]*comm.Request, parts)
	for i := range parts {
		var err error
		if pending[i], err = win.Rget(buffer.Bytes(got[i*n:(i+1)*n]), target, rma.At(int64(i*n))); err != nil {
			return err
		}
	}
	for range parts {
		i, err := comm.WaitAny(s.ctx, pending...)
		if err != nil {
			return err
		}
		fill(want, target, i, n)
		if err := same(got[i*n:(i+1)*n], want); err != nil {
			return fmt.Errorf("part %d: %w", i, err)
		}
	}
	return win.UnlockAll(s.ctx)
}

// groups divides the ranks, and computes in each part and in all of them.
func groups(s *self, _ *rma.Win) error {
	part, err := s.world.Split(s.ctx, s.rank%2, 0)
	if err != nil {
		return err
	}
	mine, sum := []int64{int64(s.rank), 1}, make([]int64, 2)
	if err := comm.Allreduce(s.ctx, part, mine, sum, rma.Sum); err != nil {
		return err
	}
	want := int64(0)
	for r := s.rank % 2; r < s.size; r += 2 {
		want += int64(r)
	}
	if sum[0] != want || sum[1] != int64(part.Size()) {
		return fmt.Errorf("the sums are %d, want %d and %d", sum, want, part.Size())
	}
	return part.Free()
}
