package vmtests

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
)

func init() { programs["goroutines"] = goroutines }

// goroutines: several goroutines of each rank use one window at once, while
// others of the same rank are in collectives.
func goroutines(s *self) error {
	const workers, rounds, bytes = 6, 60, 2500
	win, err := rma.Allocate(s.ctx, s.world, 8+s.size*workers*bytes, 1, nil)
	if err != nil {
		return err
	}
	if err := win.LockAll(s.ctx, 0); err != nil {
		return err
	}
	errs := make([]error, workers+1)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() { errs[w] = worker(s, win, w, workers, rounds, bytes) })
	}
	all.Go(func() {
		for range rounds {
			if err := s.world.Barrier(s.ctx); err != nil {
				errs[workers] = err
				return
			}
		}
	})
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := win.UnlockAll(s.ctx); err != nil {
		return err
	}
	if err := s.world.Barrier(s.ctx); err != nil {
		return err
	}
	if got, want := rma.Slice[int64](win.Memory()[:8])[0], int64(s.size*workers*rounds); got != want {
		return fmt.Errorf("the counter is %d, want %d", got, want)
	}
	return win.Free(s.ctx)
}

func worker(s *self, win *rma.Win, w, workers, rounds, bytes int) error {
	one, old := []int64{1}, []int64{0}
	data, got := make([]byte, bytes), make([]byte, bytes)
	for round := range rounds {
		for to := range s.size {
			fill(data, s.rank*workers+w, to, round)
			at := rma.At(int64(8 + (s.rank*workers+w)*bytes))
			err := all(
				func() error { return win.FetchAndOp(buffer.Of(one), buffer.Of(old), to, rma.At(0), rma.Sum) },
				func() error { return win.Put(buffer.Bytes(data), to, at) },
				func() error { return win.Flush(s.ctx, to) },
				func() error { return win.Get(buffer.Bytes(got), to, at) },
				func() error { return win.FlushLocal(s.ctx, to) },
				func() error { return same(got, data) },
			)
			if err != nil {
				return fmt.Errorf("worker %d, round %d, rank %d: %w", w, round, to, err)
			}
		}
	}
	return nil
}

func TestGoroutines(t *testing.T) {
	for _, g := range append(grounds(), testenv.Cases(nil, ground{"xdp-generic", "xdp-generic", 1})...) {
		t.Run(g.name, func(t *testing.T) {
			g.job(t, 3, spec{program: "goroutines"}).finish()
		})
	}
}
