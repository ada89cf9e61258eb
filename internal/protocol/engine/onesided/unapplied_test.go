package onesided

import (
	"errors"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// TestPeerThatAppliesNothingIsGivenUp has a peer acknowledge all that it is sent, and
// never say that anything has taken effect. It may lack room while a third rank is found
// dead, and is not waited for much longer.
func TestPeerThatAppliesNothingIsGivenUp(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a := f.access(0, 1)
	f.Pass(millisecond)
	applied := a.session.Acked(link.Request)
	f.Filter = func(from, _ int, b []byte) int {
		var h wire.Header
		if from == 1 && h.Decode(b) == wire.OK && (h.Kind == wire.KindAck || h.Kind == wire.KindData) {
			h.AckRequests = applied
			h.Encode(b)
		}
		return 1
	}
	f.issue(f.e[0], &Call{Access: a, Code: wire.CodePut, Origin: word(1)})
	f.e[0].Flush(a)
	f.Pass(8000 * millisecond)
	if a.session.Dead() {
		t.Fatal("a peer that may lack room was given up")
	}
	f.Pass(8000 * millisecond)
	if err := a.TakeError(); !a.session.Dead() || !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("the session outlives its peer: %v, %s", err, f.Describe())
	}
}
