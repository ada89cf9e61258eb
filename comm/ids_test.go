package comm

import (
	"errors"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
	"github.com/xdprma/xdprma/mpierr"
)

// TestIDsUsedUp makes communicators when the rank has no contexts left for them.
func TestIDsUsedUp(t *testing.T) {
	j, err := Join(t.Context(), Options{Place: Place{Size: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	j.contexts.used.Store(collective.SecondContext - collective.WorldContext - 2)
	j.windowIDs.used.Store(collective.SecondContext - collective.WorldContext - 2)
	last, err := j.World().Dup(t.Context())
	if err != nil || last.members.Context != collective.SecondContext-1 {
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
	if id != collective.SecondContext-1 || inner.members.Context == ending.members.Context {
		t.Error(id)
	}
	if inner, ending := last.ForWindow(j.WindowID()); inner != nil || ending != nil {
		t.Error("there are more windows than ids")
	}
}
