package onesided

import (
	"testing"

	"github.com/xdprma/xdprma/internal/link"
	"github.com/xdprma/xdprma/internal/wire"
)

// TestPeerThatAppliesNothingDiesOfItsSilence has a peer acknowledge all that it is sent, and
// never say that anything has taken effect, until it cannot be asked in bundles any more.
// Then it falls silent: the session ends, as any other does.
func TestPeerThatAppliesNothingDiesOfItsSilence(t *testing.T) {
	f := newFabric(t, 2, 64, nil)
	a := f.access(0, 1)
	f.pass(millisecond)
	applied := a.session.Acked(link.Request)
	f.filter = func(from, _ int, b []byte) int {
		var h wire.Header
		if from == 1 && h.Decode(b) == wire.OK && (h.Kind == wire.KindAck || h.Kind == wire.KindData) {
			h.AckRequests = applied
			h.Encode(b)
		}
		return 1
	}
	f.issue(f.e[0], &Call{Access: a, Code: wire.CodePut, Origin: word(1)})
	f.e[0].Flush(a)
	for range 400 {
		f.pass(1000 * millisecond)
	}
	if a.session.Dead() {
		t.Fatal("a peer that answers was given up")
	}
	f.cut[1] = true
	f.pass(30_000 * millisecond)
	if !a.session.Dead() {
		t.Errorf("the session outlives its peer: %s", f.describe())
	}
}
