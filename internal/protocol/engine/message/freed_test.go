package message

import "testing"

// TestFreedIsBounded frees more contexts than are remembered: the oldest are forgotten.
func TestFreedIsBounded(t *testing.T) {
	var f freed
	for i := range uint32(3*keptFreed + 5) {
		f.add(i)
		f.add(i) // a second time changes nothing
	}
	if forgotten := f.add(1 << 30); forgotten != 2*keptFreed+5 || f.add(1<<30) != 0 {
		t.Errorf("%d is forgotten", forgotten)
	}
	if len(f.known) != keptFreed || len(f.line) != keptFreed || f.known[2*keptFreed+5] || !f.known[2*keptFreed+6] {
		t.Errorf("%d known, %d in line", len(f.known), len(f.line))
	}
}
