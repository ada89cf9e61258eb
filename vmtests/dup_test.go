package vmtests

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
)

func init() {
	programs["duplicates"] = func(s *self) error { return duplicates(s, false) }
	programs["executed duplicates"] = func(s *self) error { return duplicates(s, true) }
}

// duplicates: ranks count by a window and a duplicate at once, with accumulates in one word, and
// under the exclusive lock of each in a word of its own. A goroutine for each of the two
// synchronises by itself. With executed, the XDP programs execute calls on the duplicate.
func duplicates(s *self, executed bool) error {
	const times = 50
	win, err := rma.Allocate(s.ctx, s.world, 64, 8)
	if err != nil {
		return err
	}
	dup, err := win.Dup(s.ctx)
	if err != nil {
		return err
	}
	next := (s.rank + 1) % s.size
	if executed {
		if err := executedByProgram(s, dup, next); err != nil {
			return err
		}
	}
	errs := make([]error, 2)
	var all sync.WaitGroup
	for i, w := range []*rma.Win{win, dup} {
		all.Go(func() { errs[i] = countBy(s, w, rma.At(int64(1+i)), times) })
	}
	all.Wait()
	// The lock of rank 0 in the window is held by the last rank, and that of the duplicate is not.
	if last := s.size - 1; s.rank == last {
		errs = append(errs, win.Lock(s.ctx, rma.LockExclusive, 0, 0), win.Flush(s.ctx, 0), s.world.Barrier(s.ctx),
			s.world.Barrier(s.ctx), win.Unlock(s.ctx, 0))
	} else {
		errs = append(errs, s.world.Barrier(s.ctx), dup.Lock(s.ctx, rma.LockExclusive, 0, 0), dup.Flush(s.ctx, 0), dup.Unlock(s.ctx, 0),
			s.world.Barrier(s.ctx))
	}
	if err := errors.Join(append(errs, s.world.Barrier(s.ctx))...); err != nil {
		return err
	}
	want, words := int64(times*s.size), make([]int64, 4)
	for _, w := range []*rma.Win{win, dup} {
		err := s.locked(w, rma.LockShared, next, func() error { return w.Get(buffer.Of(words), next, rma.At(0)) })
		if err := errors.Join(err, check(words[0] == 2*want && words[1] == want && words[2] == want, "counted %d, want %d", words, want)); err != nil {
			return err
		}
	}
	// The window goes, and the duplicate stays.
	if err := errors.Join(s.world.Barrier(s.ctx), win.Free(s.ctx)); err != nil {
		return err
	}
	v := int64(s.rank)
	err = errors.Join(dup.Fence(s.ctx, 0), dup.Put(buffer.Value(&v), next, rma.At(3)), dup.Fence(s.ctx, rma.ModeNoSucceed))
	got := rma.Slice[int64](dup.Memory())[3]
	return errors.Join(err, check(got == int64((s.rank+s.size-1)%s.size), "rank %d has %d after the window was freed", s.rank, got), dup.Free(s.ctx))
}

// countBy adds to word 0 of each rank by fetch_and_op, and to the word at own under an exclusive
// lock, in fence epochs between.
func countBy(s *self, w *rma.Win, own rma.Location, times int) error {
	one := int64(1)
	for i := range times {
		for to := range s.size {
			var v int64
			err := s.locked(w, rma.LockExclusive, to,
				func() error {
					return w.FetchAndOp(buffer.Value(&one), buffer.Value(new(int64)), to, rma.At(0), rma.Sum)
				},
				func() error { return w.Get(buffer.Value(&v), to, own) },
				func() error { return w.Flush(s.ctx, to) },
				func() error { v++; return w.Put(buffer.Value(&v), to, own) })
			if err != nil {
				return fmt.Errorf("round %d at rank %d: %w", i, to, err)
			}
		}
		if i%10 == 0 {
			if err := errors.Join(w.Fence(s.ctx, 0), w.Fence(s.ctx, rma.ModeNoSucceed)); err != nil {
				return err
			}
		}
	}
	return w.Fence(s.ctx, rma.ModeNoSucceed)
}

// executedByProgram reads from the next rank under a lock that this one has, until the program of
// this rank has executed what the rank before has asked for.
func executedByProgram(s *self, w *rma.Win, next int) error {
	if err := errors.Join(w.LockAll(s.ctx, 0), w.FlushAll(s.ctx)); err != nil {
		return err
	}
	for {
		var v int64
		for range 20 {
			if err := errors.Join(w.Get(buffer.Value(&v), next, rma.At(7)), w.Flush(s.ctx, next)); err != nil {
				return err
			}
		}
		ready := []byte{0}
		if s.inProgram() >= 20 {
			ready[0] = 1
		}
		all, err := s.world.AllgatherBytes(s.ctx, ready)
		if err != nil {
			return err
		}
		count := 0
		for _, b := range all {
			count += int(b[0])
		}
		if count == s.size {
			return w.UnlockAll(s.ctx)
		}
	}
}

// Calls on a window and its duplicate find each other's data, and their locks and fences do not
// touch each other, by frames and in memory that ranks of a host share.
func TestDuplicates(t *testing.T) {
	for _, g := range grounds() {
		t.Run(g.name, func(t *testing.T) {
			j := g.job(t, 4, spec{program: "duplicates"})
			j.finish()
			checkNothingLost(j)
		})
	}
}

// The XDP programs of ranks execute calls on a duplicate, also where ranks of a host act on the
// memory, too.
func TestDuplicatesInReach(t *testing.T) {
	for _, transport := range testenv.Cases([]string{"xdp-native"}, "xdp-generic") {
		for _, perHost := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, %d a host", transport, perHost), func(t *testing.T) {
				program := "executed duplicates"
				if perHost > 1 {
					program = "duplicates" // a neighbour on the host needs no program
				}
				lab := acceptAnswers(t, labtest.New(t, netlab.Config{Ranks: 4, RanksPerHost: perHost}), transport)
				j := start(t, lab, spec{program: program, transports: []string{transport}})
				j.finish()
				checkNothingLost(j)
			})
		}
	}
}
