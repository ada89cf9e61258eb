package poller

import (
	"testing"
	"time"
)

// Naps grow, and no further than what nobody waits for may take.
func TestNapsStayShort(t *testing.T) {
	const most = 5 * time.Millisecond
	pause := minNap
	for range 20 {
		next := nextNap(pause, most)
		if next > most || next <= pause && pause < most {
			t.Fatalf("a nap of %v follows one of %v", next, pause)
		}
		pause = next
	}
	if pause != most {
		t.Errorf("naps grow to %v, not %v", pause, most)
	}
}
