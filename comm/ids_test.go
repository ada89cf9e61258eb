package comm

import (
	"errors"
	"testing"

	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/launch/job"
	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/mpierr"
)

// TestIDsUsedUp makes communicators when the rank has no contexts left for them.
func TestIDsUsedUp(t *testing.T) {
	j, err := Join(t.Context(), job.Config{Place: bootstrap.Config{Size: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	j.Contexts.Used.Store(collective.SecondContext - collective.WorldContext - 2)
	j.WindowIDs.Used.Store(collective.SecondContext - collective.WorldContext - 2)
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
	id := j.WindowIDs.Next()
	inner, ending := last.forWindow(id)
	if id != collective.SecondContext-1 || inner.members.Context == ending.members.Context {
		t.Error(id)
	}
	if inner, ending := last.forWindow(j.WindowIDs.Next()); inner != nil || ending != nil {
		t.Error("there are more windows than ids")
	}
}

// TestEngineTakesTheWildcards holds the numbers that users read to those that the engine
// goes by.
func TestEngineTakesTheWildcards(t *testing.T) {
	if AnySource != engine.AnySource || AnyTag != engine.AnyTag || MaxTag != engine.MaxTag {
		t.Errorf("%d, %d, %d; the engine has %d, %d, %d", AnySource, AnyTag, MaxTag, engine.AnySource, engine.AnyTag, engine.MaxTag)
	}
}
