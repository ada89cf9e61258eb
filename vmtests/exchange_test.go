package vmtests

import (
	"bytes"
	"fmt"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
)

func init() { programs["exchange"] = exchange }

const largest = 1 << 20

// exchangeSizes lie around the limits of frames for each MTU of the tests.
var exchangeSizes = []int{1, 2, 3, 7, 8, 9, 64, 1000, 1271, 1272, 1360, 1392, 1393, 3390, 3391, 4096, 8892, 8893, 16384, 65536, largest}

// exchange is every operation from every rank to every rank, with its content
// checked at both ends (but see partners).
func exchange(s *self) error {
	win, err := rma.Allocate(s.ctx, s.world, s.size*largest, 1, nil)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		run  func(*self, *rma.Win) error
	}{
		{"put and get", putAndGet}, {"accumulate", accumulate}, {"get_accumulate", getAccumulate},
		{"atomics", atomics}, {"locks", locks}, {"lock_all", lockAll}, {"dynamic", dynamic},
		{"datatypes", datatypes}, {"fences", fences}, {"post and start", postStart}, {"requests", requests},
		{"groups", groups}, {"messages", messages},
	} {
		if err := step.run(s, win); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		if err := s.world.Barrier(s.ctx); err != nil {
			return fmt.Errorf("after %s: %w", step.name, err)
		}
		clear(win.Memory())
		if err := s.world.Barrier(s.ctx); err != nil {
			return fmt.Errorf("after %s: %w", step.name, err)
		}
	}
	for range 20 {
		if err := s.world.Barrier(s.ctx); err != nil {
			return err
		}
	}
	return win.Free(s.ctx)
}

// fill writes bytes that depend on who sends them to whom, and on a number.
func fill(b []byte, origin, target, number int) {
	testenv.Fill(b, uint32(origin*7919+target*104729+number))
}

// partners returns to which ranks a rank sends so many bytes at once, and which send them
// to it: all, but the largest go to the next rank alone, or what jobs of many ranks do
// would be little else.
func (s *self) partners(bytes int) (targets, origins []int) {
	if bytes == largest {
		return []int{(s.rank + 1) % s.size}, []int{(s.rank + s.size - 1) % s.size}
	}
	for i := range s.size {
		targets = append(targets, (s.rank+i)%s.size)
	}
	return targets, targets
}

func putAndGet(s *self, win *rma.Win) error {
	data, got, want := make([]byte, largest), make([]byte, largest), make([]byte, largest)
	for _, n := range exchangeSizes {
		at := rma.At(int64(s.rank*largest + min(3, largest-n))) // not aligned
		targets, origins := s.partners(n)
		for _, to := range targets {
			fill(data[:n], s.rank, to, n)
			clear(got[:n])
			err := all(
				func() error { return win.Lock(s.ctx, rma.LockShared, to, 0) },
				func() error { return win.Put(buffer.Bytes(data[:n]), to, at) },
				func() error { fill(want[:n], s.rank, to, n); clear(data[:n]); return nil }, // it is ours again
				func() error { return win.Flush(s.ctx, to) },
				func() error { return win.Get(buffer.Bytes(got[:n]), to, at) },
				func() error { return win.Unlock(s.ctx, to) },
			)
			if err != nil {
				return fmt.Errorf("%d bytes to rank %d: %w", n, to, err)
			}
			if err := same(got[:n], want[:n]); err != nil {
				return fmt.Errorf("%d bytes got back from rank %d: %w", n, to, err)
			}
		}
		if err := s.world.Barrier(s.ctx); err != nil {
			return err
		}
		for _, from := range origins {
			at := from*largest + min(3, largest-n)
			fill(want[:n], from, s.rank, n)
			if err := same(win.Memory()[at:at+n], want[:n]); err != nil {
				return fmt.Errorf("%d bytes put by rank %d: %w", n, from, err)
			}
		}
		if err := s.world.Barrier(s.ctx); err != nil {
			return err
		}
	}
	return nil
}

func same(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	wrong, first := 0, -1
	for i := range want {
		if got[i] != want[i] {
			if wrong++; first < 0 {
				first = i
			}
		}
	}
	return fmt.Errorf("%d bytes differ from byte %d on: %#x, want %#x", wrong, first, got[first], want[first])
}

// accumulate adds from all ranks to the same elements of all ranks.
func accumulate(s *self, win *rma.Win) error {
	for _, n := range []int{1, 10, 173, 174, 4000, largest / 8} {
		values := make([]int64, n)
		for i := range values {
			values[i] = int64(i+1) * int64(s.rank+1)
		}
		if err := win.LockAll(s.ctx, 0); err != nil {
			return err
		}
		targets, origins := s.partners(8 * n)
		for _, to := range targets {
			if err := win.Accumulate(buffer.Of(values), to, rma.At(0), rma.Sum); err != nil {
				return err
			}
		}
		if err := win.UnlockAll(s.ctx); err != nil {
			return err
		}
		if err := s.world.Barrier(s.ctx); err != nil {
			return err
		}
		mine := rma.Slice[int64](win.Memory())[:n]
		ranks := int64(0)
		for _, from := range origins {
			ranks += int64(from + 1)
		}
		for i, v := range mine {
			if want := int64(i+1) * ranks; v != want {
				return fmt.Errorf("element %d of %d is %d, want %d", i, n, v, want)
			}
		}
		clear(mine)
		if err := s.world.Barrier(s.ctx); err != nil {
			return err
		}
	}
	return nil
}

// getAccumulate checks the former values, in a place of each origin's own.
func getAccumulate(s *self, win *rma.Win) error {
	for _, n := range []int{1, 9, 200, 5000, largest / 4} {
		values, old := make([]int32, n), make([]int32, n)
		for i := range values {
			values[i] = int32(i*3 + s.rank)
		}
		at := rma.At(int64(s.rank * largest))
		targets, _ := s.partners(4 * n)
		for _, to := range targets {
			if err := win.Lock(s.ctx, rma.LockShared, to, 0); err != nil {
				return err
			}
			for round := range int32(3) {
				if err := win.GetAccumulate(buffer.Of(values), buffer.Of(old), to, at, rma.Sum); err != nil {
					return err
				}
				if err := win.Flush(s.ctx, to); err != nil {
					return err
				}
				for i, v := range old {
					if want := values[i] * round; v != want {
						return fmt.Errorf("round %d, element %d of %d at rank %d was %d, want %d", round, i, n, to, v, want)
					}
				}
			}
			clear(values)
			if err := win.Accumulate(buffer.Of(values), to, at, rma.Replace); err != nil {
				return err
			}
			for i := range values {
				values[i] = int32(i*3 + s.rank)
			}
			if err := win.Unlock(s.ctx, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// atomics draws tickets with fetch_and_op and adds with compare_and_swap.
func atomics(s *self, win *rma.Win) error {
	const tickets, swaps = 100, 30
	const swapped, marks = 8, 16 // byte displacements; the tickets' counter is at 0
	one, old := []int64{1}, []int64{0}
	if err := win.LockAll(s.ctx, 0); err != nil {
		return err
	}
	for i := range s.size {
		to := (s.rank + i) % s.size
		for range tickets {
			err := all(
				func() error { return win.FetchAndOp(buffer.Of(one), buffer.Of(old), to, rma.At(0), rma.Sum) },
				func() error { return win.Flush(s.ctx, to) },
				func() error { return win.Accumulate(buffer.Of(one), to, rma.At(marks+8*old[0]), rma.Sum) },
			)
			if err != nil {
				return err
			}
		}
		for range swaps {
			for done := false; !done; {
				seen := old[0]
				next := []int64{seen + 1}
				err := all(
					func() error {
						return win.CompareAndSwap(buffer.Of(next), buffer.Value(&seen), buffer.Of(old), to, rma.At(swapped))
					},
					func() error { return win.Flush(s.ctx, to) },
				)
				if err != nil {
					return err
				}
				done = old[0] == seen
			}
		}
	}
	if err := win.UnlockAll(s.ctx); err != nil {
		return err
	}
	if err := s.world.Barrier(s.ctx); err != nil {
		return err
	}
	mine := rma.Slice[int64](win.Memory())
	if mine[0] != int64(tickets*s.size) || mine[1] != int64(swaps*s.size) {
		return fmt.Errorf("%d tickets and %d swaps, want %d and %d", mine[0], mine[1], tickets*s.size, swaps*s.size)
	}
	for ticket, n := range mine[2 : 2+tickets*s.size] {
		if n != 1 {
			return fmt.Errorf("ticket %d was drawn %d times", ticket, n)
		}
	}
	return nil
}

// locks reads, changes and writes two words under an exclusive lock.
func locks(s *self, win *rma.Win) error {
	const rounds = 15
	for i := range rounds * s.size {
		to := (s.rank + i) % s.size
		words := []int64{0, 0}
		err := all(
			func() error { return win.Lock(s.ctx, rma.LockExclusive, to, 0) },
			func() error { return win.Get(buffer.Of(words), to, rma.At(largest/2-8)) },
			func() error { return win.Flush(s.ctx, to) },
			func() error {
				if words[0] != words[1] {
					return fmt.Errorf("%d and %d under one lock", words[0], words[1])
				}
				words[0]++
				words[1]++
				return win.Put(buffer.Of(words[:1]), to, rma.At(largest/2-8))
			},
			func() error { return win.Put(buffer.Of(words[1:]), to, rma.At(largest/2)) },
			func() error { return win.Unlock(s.ctx, to) },
		)
		if err != nil {
			return fmt.Errorf("round %d at rank %d: %w", i, to, err)
		}
	}
	if err := s.world.Barrier(s.ctx); err != nil {
		return err
	}
	words := rma.Slice[int64](win.Memory()[largest/2-8:])[:2]
	if want := int64(rounds * s.size); words[0] != want || words[1] != want {
		return fmt.Errorf("counted %v, want %d twice", words, want)
	}
	return nil
}

// lockAll has many small operations to all ranks under way at once.
func lockAll(s *self, win *rma.Win) error {
	const puts = 2000
	values := make([]int64, puts)
	for i := range values {
		values[i] = int64(s.rank)<<32 + int64(i)
	}
	if err := win.LockAll(s.ctx, 0); err != nil {
		return err
	}
	for i := range values {
		for to := range s.size {
			if err := win.Put(buffer.Of(values[i:i+1]), to, rma.At(int64(s.rank*largest+8*i))); err != nil {
				return err
			}
		}
	}
	if err := win.FlushAll(s.ctx); err != nil {
		return err
	}
	if err := win.UnlockAll(s.ctx); err != nil {
		return err
	}
	if err := s.world.Barrier(s.ctx); err != nil {
		return err
	}
	for from := range s.size {
		for i, v := range rma.Slice[int64](win.Memory()[from*largest:])[:puts] {
			if want := int64(from)<<32 + int64(i); v != want {
				return fmt.Errorf("put %d of rank %d is %#x, want %#x", i, from, v, want)
			}
		}
	}
	return nil
}
