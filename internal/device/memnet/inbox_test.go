package memnet

import (
	"testing"
	"time"
)

// TestInboxForgetsWhatWasTaken puts frames in and takes them out by threes, so that it is never
// empty.
func TestInboxForgetsWhatWasTaken(t *testing.T) {
	var b inbox
	now := func() time.Duration { return 0 }
	for range 5 {
		b.put(letter{})
	}
	for range 100_000 {
		for range 3 {
			b.put(letter{})
		}
		for range 3 {
			b.take(now)
		}
	}
	if b.len() != 5 || len(b.now) > 2*mostWaiting {
		t.Errorf("%d frames wait, and %d are kept", b.len(), len(b.now))
	}
}
