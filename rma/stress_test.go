package rma_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/rma"
)

// stress is what the goroutines of one rank do to a window, and what must come of it.
type stress struct {
	j     *job
	w     *rma.Win
	rng   *rand.Rand
	size  int
	alone []int64 // by target, read and written again under an exclusive lock
	added []int64 // by target, accumulated
}

// some returns a context that ends soon, mostly.
func (s *stress) some() (context.Context, context.CancelFunc) {
	if s.rng.IntN(3) == 0 {
		return context.WithCancel(s.j.ctx)
	}
	return context.WithTimeout(s.j.ctx, time.Duration(s.rng.IntN(2000))*time.Microsecond)
}

// insist calls f with contexts that end, until it is done.
func (s *stress) insist(f func(ctx context.Context) error) error {
	for {
		ctx, cancel := s.some()
		err := f(ctx)
		cancel()
		if err == nil || s.j.ctx.Err() != nil || !errors.Is(err, rma.ErrTimeout) {
			return err
		}
	}
}

// try calls f once, with a context that may end; then ok is false.
func (s *stress) try(f func(ctx context.Context) error) (ok bool, err error) {
	ctx, cancel := s.some()
	defer cancel()
	if err = f(ctx); errors.Is(err, rma.ErrTimeout) {
		return false, s.j.ctx.Err()
	}
	return err == nil, err
}

// once goes through an epoch. It ends the epoch even if something in it fails, since
// others wait for the lock.
func (s *stress) once() error {
	w, target := s.w, s.rng.IntN(s.size)
	flush := func(ctx context.Context) error { return w.Flush(ctx, target) }
	unlock := func(ctx context.Context) error { return w.Unlock(ctx, target) }
	lock := func(ctx context.Context) error { return w.Lock(ctx, rma.LockShared, target, 0) }
	var use func() error
	one, v := int64(1), int64(0)
	switch s.rng.IntN(4) {
	case 0:
		lock = func(ctx context.Context) error { return w.Lock(ctx, rma.LockExclusive, target, 0) }
		use = func() error {
			if err := first(w.Get(buffer.Value(&v), target, rma.At(0)), s.insist(flush)); err != nil {
				return err
			}
			v++
			s.alone[target]++
			return w.Put(buffer.Value(&v), target, rma.At(0))
		}
	case 1:
		use = func() error {
			s.added[target]++
			return w.Accumulate(buffer.Value(&one), target, rma.At(1), rma.Sum)
		}
	case 2:
		lock, unlock = func(ctx context.Context) error { return w.LockAll(ctx, 0) }, w.UnlockAll
		use = func() (err error) {
			for r := range s.size {
				s.added[r]++
				err = errors.Join(err, w.Accumulate(buffer.Value(&one), r, rma.At(1), rma.Sum))
			}
			return errors.Join(err, s.insist(w.FlushAll))
		}
	default:
		use = func() error {
			s.added[target]++
			r, err := w.RfetchAndOp(buffer.Value(&one), buffer.Value(&v), target, rma.At(1), rma.Sum)
			if err != nil {
				return err
			}
			return s.insist(r.Wait)
		}
	}
	if ok, err := s.try(lock); !ok {
		return err
	}
	err := use()
	return errors.Join(err, s.insist(unlock))
}

var stressHosts = [][]string{{"a", "a", "b", "", "b"}, {"a", "a", "a"}, {"", "", ""}}

// TestCallsGivenUpUnderStressLoseNothing has goroutines lock, access and unlock several windows with
// contexts that end at any moment, while others make and free windows: no lock is lost
// or held by two, and nothing issued is lost or done twice.
func TestCallsGivenUpUnderStressLoseNothing(t *testing.T) {
	rounds := 150
	if testing.Short() {
		rounds = 40
	}
	for _, hosts := range stressHosts {
		j := newJobAt(t, hosts, rma.Limits{})
		size := len(hosts)
		var wins [2][]*rma.Win
		for i := range wins {
			wins[i] = j.windows(16, 8)
		}
		totals := make([][2][2]atomic.Int64, size)
		j.each(func(n *rma.Node) error {
			var wg sync.WaitGroup
			failed := make(chan error, 3)
			for i := range wins {
				wg.Go(func() {
					s := &stress{j: j, w: wins[i][n.Rank()], rng: rand.New(rand.NewPCG(uint64(n.Rank()), uint64(i))), size: size, alone: make([]int64, size), added: make([]int64, size)}
					for round := range rounds {
						if err := s.once(); err != nil {
							failed <- fmt.Errorf("window %d, round %d: %w", i, round, err)
							return
						}
					}
					for r := range size {
						totals[r][i][0].Add(s.alone[r])
						totals[r][i][1].Add(s.added[r])
					}
				})
			}
			wg.Go(func() {
				for range rounds / 10 {
					if err := churn(j, n); err != nil {
						failed <- fmt.Errorf("windows: %w", err)
						return
					}
				}
			})
			wg.Wait()
			close(failed)
			return errors.Join(<-failed, n.World().Barrier(j.ctx))
		})
		for i := range wins {
			for r, w := range wins[i] {
				j.must(w.Sync())
				mem := rma.Slice[int64](w.Memory())
				for slot := range 2 {
					if got, want := mem[slot], totals[r][i][slot].Load(); got != want {
						t.Errorf("%q: window %d at rank %d has %d in %d, want %d", hosts, i, r, got, slot, want)
					}
				}
			}
			freeAll(j, wins[i])
		}
		for r, n := range j.nodes {
			if got := n.LockWaits(); got != 0 {
				t.Errorf("%q: %d requests wait for locks at rank %d", hosts, got, r)
			}
		}
	}
}

// churn makes a communicator and a window, uses and frees them.
func churn(j *job, n *rma.Node) error {
	c, err := n.World().Dup(j.ctx)
	if err != nil {
		return err
	}
	w, err := rma.Allocate(j.ctx, c, 64, 8, nil)
	if err != nil {
		return err
	}
	all := others(n, true)
	if err := first(w.Fence(j.ctx, 0), addOne(w, all), w.Fence(j.ctx, rma.ModeNoSucceed)); err != nil {
		return err
	}
	if got := rma.Slice[int64](w.Memory())[0]; got != int64(len(all)) {
		return fmt.Errorf("the sum is %d", got)
	}
	return first(w.Free(j.ctx), c.Free())
}

// TestDeathUnderStressHangsNobody does the same while a rank vanishes: nobody waits for ever.
func TestDeathUnderStressHangsNobody(t *testing.T) {
	t.Parallel()
	seeds := 3
	if testing.Short() {
		seeds = 1
	}
	for _, hosts := range stressHosts {
		for seed := range seeds {
			t.Run(fmt.Sprintf("%q/%d", hosts, seed), func(t *testing.T) {
				t.Parallel()
				j := newJobAt(t, hosts, soon)
				size := len(hosts)
				var wins [2][]*rma.Win
				for i := range wins {
					wins[i] = j.windows(16, 8)
				}
				dead := seed % size
				var over atomic.Bool
				time.AfterFunc(time.Duration(20+seed*17)*time.Millisecond, func() {
					j.nodes[dead].Silence()
					over.Store(true)
				})
				outcomes := j.outcomes(func(n *rma.Node) error {
					var wg sync.WaitGroup
					for i := range wins {
						wg.Go(func() {
							s := &stress{j: j, w: wins[i][n.Rank()], rng: rand.New(rand.NewPCG(uint64(n.Rank()), uint64(seed))), size: size, alone: make([]int64, size), added: make([]int64, size)}
							for s.once() == nil {
							}
						})
					}
					wg.Go(func() {
						for churn(j, n) == nil {
						}
					})
					wg.Wait()
					return j.ctx.Err()
				})
				if err := errors.Join(outcomes...); err != nil || !over.Load() {
					t.Fatalf("%q, rank %d vanishes (%v): %v", hosts, dead, over.Load(), err)
				}
			})
		}
	}
}
