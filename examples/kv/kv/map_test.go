package kv

import (
	"errors"
	"maps"
	"sync"
	"testing"

	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

// modes are the ways in which ranks access each other's slots.
var modes = map[string][]rmatest.Option{
	"frames":        nil,
	"shared memory": {rmatest.Unchecked(), rmatest.Hosts(1)},
	"lossy":         {&rmatest.Network{Seed: 5, Loss: 0.02, Duplication: 0.02, Reordering: 0.05}},
}

// TestMap has goroutines of all ranks add to the same keys, which collide, and compares the
// map with Go's.
func TestMap(t *testing.T) {
	const ranks, workers, rounds, keys = 3, 4, 40, 11
	for name, options := range modes {
		t.Run(name, func(t *testing.T) {
			rmatest.Run(t, ranks, func(t *rmatest.T, node *rma.Node) {
				ctx := t.Context()
				m, err := New(ctx, node.World(), 5)
				t.Must(err)
				errs := make([]error, workers)
				var all sync.WaitGroup
				for w := range workers {
					all.Go(func() {
						for i := range rounds {
							_, err := m.Add(ctx, uint64(1+(i+w)%keys), 1)
							errs[w] = errors.Join(errs[w], err)
						}
					})
				}
				all.Wait()
				t.Must(errors.Join(errs...))
				t.Must(node.World().Barrier(ctx))
				want, got := map[uint64]uint64{}, map[uint64]uint64{}
				for w := range workers {
					for i := range rounds {
						want[uint64(1+(i+w)%keys)] += ranks
					}
				}
				t.Must(m.Range(ctx, func(key, value uint64) bool { got[key] = value; return true }))
				if !maps.Equal(got, want) {
					t.Errorf("the map has %v, want %v", got, want)
				}
				t.Must(node.World().Barrier(ctx))

				mine := uint64(100 + node.Rank()) // a key of this rank's own
				if _, ok, err := m.Get(ctx, mine); ok || err != nil {
					t.Errorf("a key that nobody has put: %t, %v", ok, err)
				}
				t.Must(m.Put(ctx, mine, 7))
				if before, err := m.Add(ctx, mine, 1); before != 7 || err != nil {
					t.Errorf("add: %d, %v", before, err)
				}
				if value, ok, err := m.Get(ctx, mine); value != 8 || !ok || err != nil {
					t.Errorf("get: %d, %t, %v", value, ok, err)
				}
				seen := 0
				t.Must(m.Range(ctx, func(uint64, uint64) bool { seen++; return false }))
				if seen != 1 {
					t.Errorf("range went on to %d keys", seen)
				}
				t.Must(m.Close(ctx))
			}, options...)
		})
	}
}

func TestMapIsFull(t *testing.T) {
	rmatest.Run(t, 2, func(t *rmatest.T, node *rma.Node) {
		ctx := t.Context()
		m, err := New(ctx, node.World(), 2)
		t.Must(err)
		for key := range uint64(5) { // all ranks put the same
			err := m.Put(ctx, key, 1)
			if key == 0 && !errors.Is(err, ErrKey) || key > 0 && err != nil {
				t.Errorf("put %d: %v", key, err)
			}
		}
		if err := m.Put(ctx, 5, 1); !errors.Is(err, ErrFull) {
			t.Errorf("one more: %v", err)
		}
		if _, ok, err := m.Get(ctx, 5); ok || err != nil {
			t.Errorf("get of what is not there: %t, %v", ok, err)
		}
		t.Must(node.World().Barrier(ctx))
		t.Must(m.Close(ctx))
	})
}
