package comm

import (
	"errors"
	"testing"

	"github.com/xdprma/xdprma/internal/mpierr"
)

// TestIDs takes all ids that there are, at all ranks: they are all different, and fewer
// than a round is left over.
func TestIDs(t *testing.T) {
	const limit = 1000
	for size := 1; size <= 7; size++ {
		taken := map[uint32]bool{0: true, worldContext: true}
		for rank := range size {
			var own ids
			for id := own.next(rank, size, limit); id != 0; id = own.next(rank, size, limit) {
				if taken[id] || id >= limit {
					t.Fatalf("%d ranks: %d is not free", size, id)
				}
				taken[id] = true
			}
			if id := own.next(rank, size, limit); id != 0 {
				t.Errorf("got %d when there are none", id)
			}
		}
		if len(taken) != limit {
			t.Errorf("%d ranks: %d of %d ids", size, len(taken), limit)
		}
	}
}

// TestIDsUsedUp makes communicators when the rank has no contexts left for them.
func TestIDsUsedUp(t *testing.T) {
	j, err := Join(t.Context(), Options{Place: Place{Size: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	j.contexts.used.Store(secondContext - worldContext - 2)
	j.windowIDs.used.Store(secondContext - worldContext - 2)
	last, err := j.World().Dup(t.Context())
	if err != nil || last.context != secondContext-1 {
		t.Fatal(last, err)
	}
	for range 2 {
		if _, err := j.World().Dup(t.Context()); !errors.Is(err, mpierr.NoMem) {
			t.Errorf("got %v, want class no memory", err)
		}
	}
	if err := last.Barrier(t.Context()); err != nil {
		t.Error(err)
	}
	id := j.WindowID()
	inner, ending := last.ForWindow(id)
	if id != secondContext-1 || inner.context == ending.context {
		t.Error(id)
	}
	if inner, ending := last.ForWindow(j.WindowID()); inner != nil || ending != nil {
		t.Error("there are more windows than ids")
	}
}
