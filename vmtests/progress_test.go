package vmtests

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/rma"
)

func init() {
	programs["passive"] = passive
	programs["idle"] = idle
	programs["alltoall"] = allToAll
}

const passiveOps = 1000

// passive: rank 0 computes, and does not call the library until its own loads
// show that the others have done all they wanted.
func passive(s *self) error {
	win, err := rma.Allocate(s.ctx, s.world, 8, 8, nil)
	if err != nil {
		return err
	}
	if err := s.world.Barrier(s.ctx); err != nil {
		return err
	}
	if s.rank == 0 {
		if err := compute(&rma.Slice[int64](win.Memory())[0], int64((s.size-1)*passiveOps)); err != nil {
			return err
		}
	} else {
		one, old := []int64{1}, []int64{0}
		for range passiveOps {
			err := all(
				func() error { return win.Lock(s.ctx, rma.LockShared, 0, 0) },
				func() error { return win.FetchAndOp(buffer.Of(one), buffer.Of(old), 0, rma.At(0), rma.Sum) },
				func() error { return win.Unlock(s.ctx, 0) },
			)
			if err != nil {
				return err
			}
		}
	}
	return win.Free(s.ctx)
}

var computed atomic.Uint64 // keeps the compiler from leaving the work out

// compute works until counter reaches want.
func compute(counter *int64, want int64) error {
	x := uint64(1)
	for end := time.Now().Add(testenv.Limit); time.Now().Before(end); {
		for range 1 << 16 {
			x = x*6364136223846793005 + 1442695040888963407
		}
		computed.Store(x)
		if atomic.LoadInt64(counter) == want {
			return nil
		}
	}
	return fmt.Errorf("the counter has only reached %d of %d", atomic.LoadInt64(counter), want)
}

func TestPassiveProgress(t *testing.T) {
	for _, transport := range testenv.Cases([]string{"xdp-native"}, "xdp-generic", "udp") {
		for _, procs := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s/GOMAXPROCS=%d", transport, procs), func(t *testing.T) {
				lab := labtest.New(t, netlab.Config{Ranks: 2})
				s := spec{program: "passive", transports: []string{transport}}
				if procs != 0 {
					s.env = []string{"GOMAXPROCS=" + strconv.Itoa(procs)}
				}
				start(t, lab, s).finish()
			})
		}
	}
}

// idle measures what a rank costs that has nothing to do.
func idle(s *self) error {
	win, err := rma.Allocate(s.ctx, s.world, 8, 8, nil)
	if err != nil {
		return err
	}
	if err := s.world.Barrier(s.ctx); err != nil {
		return err
	}
	const pause = 2 * time.Second
	for range 2 { // the first time there may be acknowledgements yet to come
		var before, after unix.Rusage
		if err := errors.Join(unix.Getrusage(unix.RUSAGE_SELF, &before), rest(pause), unix.Getrusage(unix.RUSAGE_SELF, &after)); err != nil {
			return err
		}
		used := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
		fmt.Println("used", used)
		if used <= pause/20 {
			return win.Free(s.ctx)
		}
	}
	return fmt.Errorf("an idle rank goes on using more than %v of CPU in %v", pause/20, pause)
}

func rest(d time.Duration) error {
	time.Sleep(d)
	return nil
}

func TestIdle(t *testing.T) {
	lab := labtest.New(t, netlab.Config{Ranks: 3})
	start(t, lab, spec{program: "idle", transports: []string{"xdp-native", "xdp-generic", "udp"}}).finish()
}

// allToAll puts to every rank and meets at a barrier, many times.
func allToAll(s *self) error {
	const rounds, bytes = 30, 8192
	win, err := rma.Allocate(s.ctx, s.world, s.size*bytes, 1, nil)
	if err != nil {
		return err
	}
	data := make([]byte, bytes)
	for round := range rounds {
		if err := win.LockAll(s.ctx, 0); err != nil {
			return err
		}
		for i := range s.size {
			to := (s.rank + i) % s.size
			fill(data, s.rank, to, round)
			if err := win.Put(buffer.Bytes(data), to, rma.At(int64(s.rank*bytes))); err != nil {
				return err
			}
		}
		if err := win.UnlockAll(s.ctx); err != nil {
			return err
		}
		if err := s.world.Barrier(s.ctx); err != nil {
			return err
		}
		for from := range s.size {
			fill(data, from, s.rank, round)
			if err := same(win.Memory()[from*bytes:][:bytes], data); err != nil {
				return fmt.Errorf("round %d, from rank %d: %w", round, from, err)
			}
		}
		if err := s.world.Barrier(s.ctx); err != nil {
			return err
		}
	}
	return win.Free(s.ctx)
}

// More ranks than cores make progress.
func TestOversubscription(t *testing.T) {
	for _, transport := range testenv.Cases([]string{"xdp-native"}, "xdp-generic", "udp") {
		t.Run(transport, func(t *testing.T) {
			lab := labtest.New(t, netlab.Config{Ranks: 7})
			start(t, lab, spec{program: "alltoall", transports: []string{transport}}).finish()
		})
	}
}
