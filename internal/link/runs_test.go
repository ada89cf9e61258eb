package link

import (
	"testing"

	"github.com/xdprma/xdprma/internal/wire"
)

// Messages are about as long as each other, and none is longer than it may be.
func TestRunsAreEven(t *testing.T) {
	for most := int32(2); most <= 128; most++ {
		for n := int32(0); n <= 1000; n++ {
			run := int32(evenRun(n, most))
			if messages := max(1, (n+most-1)/most); run > most || run*messages < n || run*messages-n >= messages {
				t.Fatalf("%d frames, at most %d a message: %d", n, most, run)
			}
		}
	}
}

// A long transfer is written by halves, and its end does not go by itself as crumbs.
func TestBatchesOfATransfer(t *testing.T) {
	for _, payload := range []int{1472, 8972} {
		s := &Session{}
		s.maxPayload = payload
		if n := s.Batch(1<<20, 32); n != 32 {
			t.Errorf("a batch of %d where no frames are joined", n)
		}
		s.runs.most = 44
		each := s.maxPayload - wire.HeaderLen - wire.RecordLen
		for left := 1; left < 4<<20; left += 97 {
			n := s.Batch(left, 32)
			if n < 32 || n > mostBatch {
				t.Fatalf("a batch of %d for %d bytes", n, left)
			}
			if rest := left - n*each; n < mostBatch && rest > 0 && rest < leastBytes {
				t.Fatalf("a batch of %d leaves %d of %d bytes", n, rest, left)
			}
			if n > 32 && n < mostBatch && 2*n*each < left-2*each {
				t.Fatalf("a batch of %d is less than half of %d bytes", n, left)
			}
		}
	}
}
