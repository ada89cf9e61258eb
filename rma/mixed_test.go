package rma_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/rma"
)

// mixedHosts are ranks that use frames, that share memory, and some of both.
var mixedHosts = [][]string{{"", "", ""}, {"a", "a", "a"}, {"a", "b", "a"}}

// addOne adds 1 to the first element of each of ranks.
func addOne(w *rma.Win, ranks []int) (err error) {
	one := int64(1)
	for _, r := range ranks {
		err = errors.Join(err, w.Accumulate(buffer.Value(&one), r, rma.At(0), rma.Sum))
	}
	return err
}

// TestAllSynchronisation goes through all kinds of synchronisation on one window,
// one after the other, with assertions and without.
func TestAllSynchronisation(t *testing.T) {
	for _, hosts := range mixedHosts {
		j := newJobAt(t, hosts, rma.Limits{})
		wins := j.windows(8, 8)
		j.each(func(n *rma.Node) error {
			w, c, all, rest := wins[n.Rank()], n.World(), others(n, true), others(n, false)
			lockEach := func() (err error) {
				for _, r := range all {
					err = errors.Join(err, w.Lock(j.ctx, rma.LockExclusive, r, 0), addOne(w, []int{r}), w.Unlock(j.ctx, r))
				}
				return err
			}
			for round := range 10 {
				err := first(
					w.Fence(j.ctx, 0), addOne(w, all), w.Fence(j.ctx, rma.ModeNoSucceed),
					w.Post(j.ctx, all, 0), w.Start(j.ctx, all, 0), addOne(w, all), w.Complete(j.ctx), w.Wait(j.ctx),
					w.Post(j.ctx, all, rma.ModeNoCheck), c.Barrier(j.ctx),
					w.Start(j.ctx, all, rma.ModeNoCheck), addOne(w, all), w.Complete(j.ctx), w.Wait(j.ctx), c.Barrier(j.ctx),
					w.LockAll(j.ctx, 0), addOne(w, all), w.UnlockAll(j.ctx), c.Barrier(j.ctx),
					w.LockAll(j.ctx, rma.ModeNoCheck), addOne(w, all), w.UnlockAll(j.ctx), c.Barrier(j.ctx),
					lockEach(), c.Barrier(j.ctx),
					// Two epochs before the first post.
					w.Start(j.ctx, rest, 0), addOne(w, rest), w.Complete(j.ctx),
					w.Start(j.ctx, rest, 0), addOne(w, rest), w.Complete(j.ctx),
					w.Post(j.ctx, rest, 0), w.Wait(j.ctx), w.Post(j.ctx, rest, 0), w.Wait(j.ctx),
					c.Barrier(j.ctx), w.Sync(),
				)
				if err != nil {
					return err
				}
				if got, want := rma.Slice[int64](w.Memory())[0], int64((round+1)*(6*len(all)+2*len(rest))); got != want {
					return fmt.Errorf("round %d: the sum is %d, want %d", round, got, want)
				}
				if err := c.Barrier(j.ctx); err != nil {
					return err
				}
			}
			return w.Free(j.ctx)
		})
	}
}

// TestGoroutinesSynchronise has goroutines of each rank synchronise at the same
// time, each on a window and in a way of its own.
func TestGoroutinesSynchronise(t *testing.T) {
	const rounds = 100
	for _, hosts := range mixedHosts {
		j := newJobAt(t, hosts, rma.Limits{})
		kinds := map[string]func(w *rma.Win, all []int) error{
			"fence": func(w *rma.Win, all []int) error {
				return first(w.Fence(j.ctx, 0), addOne(w, all), w.Fence(j.ctx, 0))
			},
			"post and start": func(w *rma.Win, all []int) error {
				return first(w.Post(j.ctx, all, 0), w.Start(j.ctx, all, 0), addOne(w, all), w.Complete(j.ctx), w.Wait(j.ctx))
			},
			"lock all": func(w *rma.Win, all []int) error {
				return first(w.LockAll(j.ctx, 0), addOne(w, all), w.UnlockAll(j.ctx))
			},
			"lock": func(w *rma.Win, all []int) (err error) {
				for _, r := range all {
					err = errors.Join(err, w.Lock(j.ctx, rma.LockExclusive, r, 0), addOne(w, []int{r}), w.Unlock(j.ctx, r))
				}
				return err
			},
		}
		wins := map[string][]*rma.Win{}
		for kind := range kinds {
			wins[kind] = j.windows(8, 8)
		}
		j.each(func(n *rma.Node) error {
			var wg sync.WaitGroup
			failed := make(chan error, len(kinds))
			for kind, once := range kinds {
				wg.Go(func() {
					for range rounds {
						if err := once(wins[kind][n.Rank()], others(n, true)); err != nil {
							failed <- fmt.Errorf("%s: %w", kind, err)
							return
						}
					}
				})
			}
			wg.Wait()
			close(failed)
			return errors.Join(<-failed, n.World().Barrier(j.ctx))
		})
		for kind, of := range wins {
			for r, w := range of {
				j.must(w.Sync())
				if got := rma.Slice[int64](w.Memory())[0]; got != int64(rounds*len(hosts)) {
					t.Errorf("%q, %s: rank %d has %d, want %d", hosts, kind, r, got, rounds*len(hosts))
				}
			}
		}
	}
}
