package vmtests

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/rma"
)

func init() { programs["sum"] = sum }

// sumBytes is what a round of sum puts: several frames at an MTU of 1500.
const sumBytes = 6000

// sum adds to counters of all other ranks and puts a pattern there, reads it back
// and checks it, until the test says "stop". Then it checks that no addition and
// no put was lost or happened twice.
func sum(s *self) error {
	// A counter, then a region for each origin.
	win, err := rma.Allocate(s.ctx, s.world, 8+s.size*sumBytes, 1, nil)
	if err != nil {
		return err
	}
	if err := win.LockAll(s.ctx, 0); err != nil {
		return err
	}
	var stop atomic.Bool
	heard := make(chan error, 1)
	go func() {
		err := s.listen("stop")
		if err == io.EOF {
			return // nobody will ever say it
		}
		heard <- err
		stop.Store(true)
	}()
	rounds := 0
	for ; !stop.Load(); rounds++ {
		if err := sumRound(s, win, rounds); err != nil {
			return fmt.Errorf("round %d: %w", rounds, err)
		}
		if rounds == 10 {
			fmt.Println("running")
		}
	}
	if err := <-heard; err != nil {
		return err
	}
	if err := win.UnlockAll(s.ctx); err != nil {
		return err
	}
	if err := sumCheck(s, win, rounds); err != nil {
		return err
	}
	fmt.Println("rounds", rounds)
	return win.Free(s.ctx)
}

func sumRound(s *self, win *rma.Win, round int) error {
	one, old := []int64{1}, []int64{0}
	data, got, want := make([]byte, sumBytes), make([]byte, sumBytes), make([]byte, sumBytes)
	for to := range s.size {
		if to == s.rank && s.size > 1 {
			continue
		}
		at := rma.At(int64(8 + s.rank*sumBytes))
		fill(data, s.rank, to, round)
		copy(want, data)
		err := all(
			func() error { return win.FetchAndOp(buffer.Of(one), buffer.Of(old), to, rma.At(0), rma.Sum) },
			func() error { return win.Put(buffer.Bytes(data), to, at) },
			func() error { return win.Flush(s.ctx, to) },
			func() error { return win.Get(buffer.Bytes(got), to, at) },
			func() error { return win.Flush(s.ctx, to) },
			func() error { return same(got, want) },
		)
		if err != nil {
			return fmt.Errorf("at rank %d: %w", to, err)
		}
	}
	return nil
}

// sumCheck compares this rank's window with what all ranks say they did.
func sumCheck(s *self, win *rma.Win, rounds int) error {
	blocks, err := s.world.AllgatherBytes(s.ctx, binary.LittleEndian.AppendUint64(nil, uint64(rounds)))
	if err != nil {
		return err
	}
	want, pattern := int64(0), make([]byte, sumBytes)
	for from, b := range blocks {
		if from == s.rank && s.size > 1 {
			continue
		}
		n := int(binary.LittleEndian.Uint64(b))
		want += int64(n)
		fill(pattern, from, s.rank, n-1)
		if err := same(win.Memory()[8+from*sumBytes:][:sumBytes], pattern); err != nil {
			return fmt.Errorf("what rank %d put last: %w", from, err)
		}
	}
	if got := rma.Slice[int64](win.Memory()[:8])[0]; got != want {
		return fmt.Errorf("the counter is %d, want %d", got, want)
	}
	return nil
}
