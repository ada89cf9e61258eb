package job

import (
	"net/netip"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/engine"
)

// TestEndRefutesThatProcessAlone has a directory take in that processes have ended: another one may
// come with the rank, unless it is said that none will.
func TestEndRefutesThatProcessAlone(t *testing.T) {
	at := netip.MustParseAddrPort("192.0.2.1:7777")
	var d directory
	d.learn(1, peerAddress{addr: at, incarnation: 5})
	d.learn(2, peerAddress{addr: at, incarnation: 5})
	d.ended(1, 6)
	d.ended(2, 0)
	d.ended(3, 5)
	for _, test := range []struct {
		rank        int
		incarnation uint64
		want        engine.Verdict
	}{
		{1, 5, engine.Refuted}, {1, 6, engine.Refuted}, {1, 7, engine.Unknown},
		{2, 5, engine.Refuted}, {2, 1 << 63, engine.Refuted},
		{3, 5, engine.Refuted}, {3, 6, engine.Unknown},
	} {
		if v := d.judge(test.rank, test.incarnation, at); v != test.want {
			t.Errorf("a hello of rank %d, incarnation %d: %v, not %v", test.rank, test.incarnation, v, test.want)
		}
	}
	d.learn(1, peerAddress{addr: at, incarnation: 7})
	if v := d.judge(1, 7, at); v != engine.Confirmed {
		t.Errorf("the next process of rank 1: %v, not %v", v, engine.Confirmed)
	}
}
