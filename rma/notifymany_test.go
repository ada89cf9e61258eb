package rma_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

// In the tests here all other ranks notify one. Each has a counter, its rank, and they share one.
const (
	manyRanks   = 8
	notifiedOne = 1         // the rank that is notified
	ofAll       = manyRanks // the counter of all of them
	manyCalls   = 300       // of each origin, which count on its counter; as many count on that of all
	longEach    = 50        // of so many calls one is long
	longWords   = 30_000 / 8
	originWords = manyCalls + manyCalls/longEach*longWords
)

// placeOf returns the words in which a call of an origin leaves its number, from 1.
func placeOf(origin, call int) (first, n int) {
	first = 1 + origin*originWords
	if call%longEach == 0 {
		return first + manyCalls + (call/longEach-1)*longWords, longWords
	}
	return first + call - 1, 1
}

// ordered reports whether the operations of an origin are.
func ordered(origin int) bool { return origin%2 == 0 }

func notifiedByMany(ctx context.Context, n *rma.Node) (*rma.Win, error) {
	size, info := 8, rma.Info{}
	if n.Rank() == notifiedOne {
		size, info = 8*(1+manyRanks*originWords), rma.Counters(manyRanks+1)
	}
	if ordered(n.Rank()) {
		info = rma.Ordered()
	}
	return rma.Allocate(ctx, n.World(), size, 8, info)
}

// notifyMuch makes the calls of an origin. With each it adds one to the first word.
func notifyMuch(ctx context.Context, w *rma.Win, origin int) error {
	r := rand.New(rand.NewPCG(uint64(origin), 1))
	one := []int64{1}
	err := w.LockAll(ctx)
	for call := 1; call <= manyCalls && err == nil; call++ {
		first, n := placeOf(origin, call)
		data, old := buffer.Of(slices.Repeat([]int64{int64(call)}, n)), make([]int64, 2)
		at := rma.At(first).Notify(origin)
		switch kind := r.IntN(4); {
		case kind == 0:
			err = w.Put(data, notifiedOne, at)
		case kind == 1:
			err = w.Accumulate(data, notifiedOne, at, rma.Sum)
		case kind == 2 && n == 1:
			err = w.FetchAndOp(data, buffer.Of(old[:1]), notifiedOne, at, rma.Sum)
		default:
			err = errors.Join(w.Put(data, notifiedOne, rma.At(first)), w.Notify(ctx, notifiedOne, origin))
		}
		if at := rma.At(0).Notify(ofAll); call%2 == 0 {
			err = errors.Join(err, w.Accumulate(buffer.Of(one), notifiedOne, at, rma.Sum))
		} else {
			err = errors.Join(err, w.FetchAndOp(buffer.Of(one), buffer.Of(old[1:]), notifiedOne, at, rma.Sum))
		}
		if r.IntN(4) == 0 { // what is waited for alone may be executed by a program
			err = errors.Join(err, w.Flush(ctx, notifiedOne))
		}
	}
	return errors.Join(err, w.UnlockAll(ctx))
}

// told returns an error if n notifications of an origin tell of calls that have not acted: the first n,
// or any n where they are not ordered.
func told(mem []int64, origin int, n uint64) error {
	acted := uint64(0)
	for call := 1; call <= manyCalls; call++ {
		first, words := placeOf(origin, call)
		if !slices.ContainsFunc(mem[first:first+words], func(x int64) bool { return x != int64(call) }) {
			acted++
		} else if ordered(origin) {
			break
		}
	}
	if acted < n {
		return fmt.Errorf("rank %d has notified %d times, and %d of its calls have acted", origin, n, acted)
	}
	return nil
}

// hearMany waits in many goroutines until each origin has made its calls, and looks at the window each time.
func hearMany(ctx context.Context, w *rma.Win, origins []int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	mem := rma.View[int64](w).Memory()
	all := uint64(len(origins) * manyCalls)
	waits := []func() error{func() error {
		for n := uint64(0); n < all; {
			var err error
			if n, err = w.WaitNotified(ctx, ofAll, min(n+10, all)); err != nil {
				return err
			}
			if sum := atomic.LoadInt64(&mem[0]); sum < int64(n) {
				return fmt.Errorf("all have notified %d times, and have added %d", n, sum)
			}
		}
		return nil
	}}
	for _, origin := range origins {
		waits = append(waits, func() error {
			for n := uint64(0); n < manyCalls; {
				var err error
				if n, err = w.WaitNotified(ctx, origin, min(n+1+uint64(origin), manyCalls)); err != nil {
					return err
				}
				if err := told(mem, origin, n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for _, step := range []uint64{3, 20} {
		waits = append(waits, func() error {
			for least := uint64(0); least < manyCalls; {
				least = min(least+step, manyCalls)
				for left := slices.Clone(origins); len(left) > 0; {
					origin, n, err := w.WaitAnyNotified(ctx, least, left...)
					if err != nil {
						return err
					}
					if err := told(mem, origin, n); err != nil {
						return err
					}
					left = slices.DeleteFunc(left, func(o int) bool { return o == origin })
				}
			}
			return nil
		})
	}
	done := make(chan error)
	for _, wait := range waits {
		go func() { done <- wait() }()
	}
	var failed error
	for range waits {
		if err := <-done; err != nil && failed == nil {
			failed = err
			cancel()
		}
	}
	return failed
}

// notifyFromMany is the part of a rank in the tests here. In the end each notification has counted once.
func notifyFromMany(ctx context.Context, n *rma.Node, w *rma.Win) error {
	if n.Rank() != notifiedOne {
		return errors.Join(notifyMuch(ctx, w, n.Rank()), n.World().Barrier(ctx))
	}
	var origins []int
	want := make([]uint64, manyRanks+1)
	for rank := range manyRanks {
		if rank != notifiedOne {
			origins = append(origins, rank)
			want[rank] = manyCalls
			want[ofAll] += manyCalls
		}
	}
	err := errors.Join(hearMany(ctx, w, origins), n.World().Barrier(ctx))
	for counter, want := range want {
		got, e := w.Notified(counter)
		if err = errors.Join(err, e); got != want {
			err = errors.Join(err, fmt.Errorf("counter %d: %d notifications, not %d", counter, got, want))
		}
	}
	return err
}

// TestManyOriginsNotify has all other ranks notify one at once, by operations of all kinds, while many
// goroutines of it wait.
func TestManyOriginsNotify(t *testing.T) {
	overAll(t, manyRanks, func(t *testing.T, j *job) {
		wins := make([]*rma.Win, manyRanks)
		j.each(func(n *rma.Node) (err error) {
			wins[n.Rank()], err = notifiedByMany(j.ctx, n)
			return err
		})
		xdp, before := strings.HasPrefix(j.nodes[notifiedOne].Mode(), "xdp"), uint64(0)
		if xdp {
			awaitReach(j, wins[0])
			before = executed(j.nodes[notifiedOne]) + handedOn(j.nodes[notifiedOne])
		}
		j.each(func(n *rma.Node) error { return notifyFromMany(j.ctx, n, wins[n.Rank()]) })
		if xdp && executed(j.nodes[notifiedOne])+handedOn(j.nodes[notifiedOne]) == before {
			t.Error("the program has executed nothing")
		}
		freeAll(j, wins)
	})
}

// TestManyOriginsNotifyOverABadNetwork is TestManyOriginsNotify where frames are lost, come twice and
// overtake each other.
func TestManyOriginsNotifyOverABadNetwork(t *testing.T) {
	for name, options := range map[string][]rmatest.Option{"checked": nil, "unchecked": {rmatest.Unchecked()}} {
		t.Run(name, func(t *testing.T) {
			bad := &rmatest.Network{Loss: 0.05, Duplication: 0.1, Reordering: 0.1, Delay: 100 * time.Microsecond}
			rmatest.Run(t, manyRanks, func(t *rmatest.T, node *rma.Node) {
				w, err := notifiedByMany(t.Context(), node)
				t.Must(err)
				t.Must(notifyFromMany(t.Context(), node, w))
				t.Must(w.Free(t.Context()))
			}, append(options, bad)...)
		})
	}
}
