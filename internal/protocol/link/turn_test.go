package link_test

import (
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// A target with little room leaves bundles that come before their turn, again and again.
// When their turn has come they are sent at once, however often that was in vain before.
func TestBundlesLeftForWantOfRoomComeAtOnceInTheirTurn(t *testing.T) {
	f := newRanks(t, 2, func(c *link.Config) { c.Parked = 6 })
	a := f.open(0, 1)
	blocked, lost := true, map[uint64]bool{}
	f.Filter = func(from, _ int, b []byte) int {
		var h wire.Header
		if from != 0 || h.Decode(b) != wire.OK || h.Kind != wire.KindData {
			return 1
		}
		if blocked && h.Sequence == 1 || !blocked && h.Sequence > 1 && !lost[h.Sequence] {
			lost[h.Sequence] = !blocked // of the others, one transmission each
			return 0
		}
		return 1
	}
	f.send(a, 30_000, wire.FlagOrdered)
	a.push()
	f.Pass(2000 * millisecond)
	if f.e[1].Stats.ParkingFull == 0 {
		t.Fatal("no bundle was left for want of room")
	}
	blocked = false
	start := f.Now
	f.Until(10_000*millisecond, a.over)
	if took := f.Now - start; took > 200*millisecond {
		t.Errorf("the rest took %d ms once the first bundle could pass", took/millisecond)
	}
	f.once(a, 0)
	f.AtRest()
}
