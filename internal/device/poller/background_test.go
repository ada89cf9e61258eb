package poller

import (
	"testing"
	"time"
)

// TestNapsStayShort follows the naps of the background goroutine while a caller waits for long: they
// grow with the wait, and no further than what nobody waits for may take.
func TestNapsStayShort(t *testing.T) {
	const most = 5 * time.Millisecond
	pause, waits := minNap, time.Duration(0)
	for waits < time.Second {
		waits += pause
		if next := nextNap(pause, waits, most); next < pause && pause <= maxNap || next > most || next > max(maxNap, waits) {
			t.Fatalf("after %v: a nap of %v follows one of %v", waits, next, pause)
		} else {
			pause = next
		}
	}
	if pause != most {
		t.Errorf("the naps of a long wait take %v, not %v", pause, most)
	}
	if next := nextNap(most, 0, most); next != maxNap {
		t.Errorf("the first nap in the next wait takes %v, not %v", next, maxNap)
	}
	if next := nextNap(minNap, time.Second, time.Millisecond); next != 2*minNap {
		t.Errorf("the second nap takes %v, not %v", next, 2*minNap)
	}
}
