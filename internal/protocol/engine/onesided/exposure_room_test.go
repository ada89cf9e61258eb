package onesided

import (
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// TestPostAndCompleteWaitForNoRoom fills what there is room for to a peer that does not
// answer, and posts to it and completes there: both arrive when it answers again.
func TestPostAndCompleteWaitForNoRoom(t *testing.T) {
	f := newRanks(t, 2, 4096, nil)
	e, a, b := f.e[0], f.access(0, 1), f.access(1, 0)
	f.e[1].Post(b, false)
	e.Start(a)
	f.Settle()
	f.Cut[1] = true
	for done, err := true, error(nil); done; {
		done, err = e.Issue(&Call{Access: a, Code: wire.CodePut, Origin: make([]byte, 1024)})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Complete(a); err != nil {
		t.Fatal(err)
	}
	e.Post(a, false)
	f.Pass(100 * millisecond)
	f.Cut[1] = false
	f.Until(10_000*millisecond, func() bool { return !b.Exposing() && b.posts == 1 })
	if err := f.flush(e, a); err != nil {
		t.Error(err)
	}
}
