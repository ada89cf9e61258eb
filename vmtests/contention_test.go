package vmtests

import (
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/rma"
)

func init() { programs["contention"] = contention }

// contention: all ranks want the same locks all the time. Under the exclusive lock
// each changes two counters one after the other, so that two at once lose an
// addition, and under the shared lock each finds them equal.
func contention(s *self) error {
	const rounds = 60
	win, err := rma.Allocate(s.ctx, s.world, 16, 8, nil)
	if err != nil {
		return err
	}
	read := func(to int, v []int64) error {
		return all(
			func() error { return win.Get(buffer.Of(v), to, rma.At(0)) },
			func() error { return win.Flush(s.ctx, to) },
		)
	}
	for round := range rounds {
		to := round / 20 % s.size // one lock for all, and another one later
		var v [2]int64
		err := all(
			func() error { return win.Lock(s.ctx, rma.LockExclusive, to, 0) },
			func() error { return read(to, v[:]) },
			func() error { return check(v[0] == v[1], "an exclusive holder saw %d", v) },
			func() error { v[0]++; return win.Put(buffer.Of(v[:1]), to, rma.At(0)) },
			func() error { return win.Flush(s.ctx, to) },
			func() error { v[1]++; return win.Put(buffer.Of(v[1:]), to, rma.At(1)) },
			func() error { return win.Unlock(s.ctx, to) },
			func() error { return win.Lock(s.ctx, rma.LockShared, to, 0) },
			func() error { return read(to, v[:]) },
			func() error { return check(v[0] == v[1], "a shared holder saw %d", v) },
			func() error { return win.Unlock(s.ctx, to) },
		)
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	if err := s.world.Barrier(s.ctx); err != nil {
		return err
	}
	got, want := rma.Slice[int64](win.Memory()), int64(0)
	for round := range rounds {
		if round/20%s.size == s.rank {
			want += int64(s.size)
		}
	}
	if err := check(got[0] == want && got[1] == want, "rank %d has %d, want %d", s.rank, got, want); err != nil {
		return err
	}
	return all(func() error { return win.Free(s.ctx) }, func() error { return addAtOnce(s) })
}

// addAtOnce: all ranks add to the same elements of each width, at every rank, by
// accumulate and by fetch_and_op. No addition is lost, and none is seen in part: the two
// halves of a complex number stay in proportion.
func addAtOnce(s *self) error {
	const rounds = 300
	win, err := rma.Allocate(s.ctx, s.world, 48, 1, nil)
	if err != nil {
		return err
	}
	if err := win.LockAll(s.ctx, 0); err != nil {
		return err
	}
	one, small, wide := int64(1), uint8(1), complex(1, 2)
	for range rounds {
		for to := range s.size {
			var seen complex128
			err := all(
				func() error { return win.Accumulate(buffer.Value(&wide), to, rma.At(0), rma.Sum) },
				func() error { return win.Accumulate(buffer.Value(&one), to, rma.At(16), rma.Sum) },
				func() error { return win.Accumulate(buffer.Value(&small), to, rma.At(24), rma.Sum) },
				func() error { seen, err = rma.Fetch(s.ctx, win, wide, to, rma.At(32), rma.Sum); return err },
				func() error { return check(imag(seen) == 2*real(seen), "half of an addition: %v", seen) },
			)
			if err != nil {
				return err
			}
		}
	}
	if err := all(func() error { return win.UnlockAll(s.ctx) }, func() error { return s.world.Barrier(s.ctx) }); err != nil {
		return err
	}
	n := rounds * s.size
	want := complex(float64(n), float64(2*n))
	sums, counts, bytes := rma.Slice[complex128](win.Memory()), rma.Slice[int64](win.Memory()), win.Memory()
	if err := check(sums[0] == want && sums[2] == want && counts[2] == int64(n) && bytes[24] == uint8(n),
		"rank %d has %v, %d and %d, want %v and %d", s.rank, sums, counts[2], bytes[24], want, n); err != nil {
		return err
	}
	return win.Free(s.ctx)
}

func check(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

func TestContention(t *testing.T) {
	ranks := 7
	if testing.Short() {
		ranks = 4
	}
	for _, g := range grounds() {
		t.Run(g.name, func(t *testing.T) {
			j := g.job(t, ranks, spec{program: "contention"})
			j.finish()
			checkNothingLost(j)
		})
	}
}
