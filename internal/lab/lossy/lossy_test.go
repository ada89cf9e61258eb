package lossy_test

import (
	"testing"

	"github.com/xdprma/xdprma/internal/lab/lossy"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/rmatest"
)

// TestRing has a consumer wait for each item of its producer, in each of the ways that
// docs/patterns.md names. The producer is up to a whole ring ahead.
func TestRing(t *testing.T) {
	const places, items = 4, 200
	for name, way := range map[string]struct {
		info      rma.Info
		each, all bool // places have a counter each; Notify counts what comes before it
	}{
		"a counter for each place": {each: true},
		"ordered":                  {info: rma.Ordered()},
		"notify":                   {all: true},
	} {
		t.Run(name, func(t *testing.T) {
			lossy.Networks(t, func(t *testing.T, net *rmatest.Network) {
				const producer, consumer, free = 0, 1, places
				rmatest.Run(t, 2, func(t *rmatest.T, node *rma.Node) {
					ctx := t.Context()
					win, err := rma.AllocateOf[int](ctx, node.World(), places, rma.Counters(places+1), way.info)
					t.Must(err)
					t.Must(win.LockAll(ctx))
					for i := range items {
						place, counter, number := i%places, 0, uint64(i+1)
						if way.each {
							counter, number = place, uint64(i/places+1)
						}
						if node.Rank() == consumer {
							_, err := win.WaitNotified(ctx, counter, number)
							t.Must(err)
							if got := win.Memory()[place]; got != i+1 {
								t.Errorf("item %d is %d", i+1, got)
							}
							t.Must(win.Sync())
							t.Must(win.Notify(ctx, producer, free))
							t.Must(win.FlushLocal(ctx, producer))
							continue
						}
						if i >= places {
							_, err := win.WaitNotified(ctx, free, uint64(i-places+1))
							t.Must(err)
						}
						at := rma.At(place)
						if !way.all {
							at = at.Notify(counter)
						}
						t.Must(win.Put([]int{i + 1}, consumer, at))
						if way.all {
							t.Must(win.Notify(ctx, consumer, counter))
						}
						t.Must(win.FlushLocal(ctx, consumer))
					}
					t.Must(win.UnlockAll(ctx))
					t.Must(win.Free(ctx))
				}, net, rmatest.Unchecked())
			})
		})
	}
}
