package engine

import (
	"testing"

	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/wire"
)

// TestRevokeOvertakes loses the frame of a message, after which its sender breaks the
// communicator: what was sent before can still be received.
func TestRevokeOvertakes(t *testing.T) {
	f := newFabric(t, 2, 8, nil)
	f.dial(0, 1)
	f.settle()
	lose := true
	f.filter = func(from, _ int, b []byte) int {
		if lose && from == 0 && kindOfFrame(b) == wire.KindData {
			lose = false
			return 0
		}
		return 1
	}
	f.send(0, 1, 5, 1, content(1, 100))
	f.settle()
	f.e[0].Revoke(f.now, 5, 0)
	f.pass(1000 * millisecond)
	if _, broken := f.e[1].Revoked(5); lose || !broken {
		t.Fatal("nothing was lost, or broken")
	}
	if r := f.receive(1, 0, 5, 1, 100); !r.Met() || r.Err() != nil {
		t.Errorf("the message: %v, %v", r.Met(), r.Err())
	}
	if r := f.receive(1, 0, 5, 1, 100); !r.Met() || r.Err() == nil {
		t.Errorf("another one: %v, %v", r.Met(), r.Err())
	}
	f.atRest()
}

// TestRevokedIsBounded has a peer break more communicators than there can be.
func TestRevokedIsBounded(t *testing.T) {
	f := newFabric(t, 2, 8, nil)
	s := f.access(0, 1).session
	const most = 1 << 16
	for context := range uint32(2 * most) {
		r := wire.Record{Code: wire.CodeRevoke, Window: context, Disp: 1}
		if class := f.e[0].applyRecord(&bundle{session: s}, &r); class != mpierr.Success {
			t.Fatal(class)
		}
	}
	if n, m := len(f.e[0].revoked.failed), len(f.e[0].revoked.contexts); n != most || m != most {
		t.Errorf("%d and %d contexts are remembered", n, m)
	}
}
