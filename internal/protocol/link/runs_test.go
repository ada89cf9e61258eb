package link

import (
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// Messages have as many frames as each other, or one less, and no more than they may have.
func TestRunsAreEven(t *testing.T) {
	for most := int32(2); most <= 128; most++ {
		for n := int32(1); n <= 1000; n++ {
			first, left, messages := evenRun(n, most), n, int32(0)
			for ; left > 0; messages++ {
				run := evenRun(left, most)
				if left -= int32(run); run > int(most) || run > first || run < first-1 || left < 0 {
					t.Fatalf("%d frames, at most %d a message: %d, and %d after the first of %d", n, most, run, left, first)
				}
			}
			if messages != (n+most-1)/most {
				t.Fatalf("%d frames, at most %d a message, take %d", n, most, messages)
			}
		}
	}
	if n := evenRun(0, 2); n != 0 {
		t.Errorf("%d frames of none", n)
	}
}

// A long transfer is written by halves, and its end does not go by itself as crumbs.
func TestBatchesOfATransfer(t *testing.T) {
	for payload, alone := range map[int]int{1472: 32, 8972: fewestBundles} {
		s := &Session{link: &Link{}}
		s.maxPayload = payload
		if n := s.Batch(1<<20, 32); n != alone {
			t.Errorf("a batch of %d where no frames of %d bytes are joined, want %d", n, payload, alone)
		}
		s.runs.most = 44
		each := s.maxPayload - wire.HeaderLen - wire.RecordLen
		for left := 1; left < 4<<20; left += 97 {
			n := s.Batch(left, 32)
			most := max(32, mostBatch/each)
			if n < 32 || n > most {
				t.Fatalf("a batch of %d for %d bytes", n, left)
			}
			if rest := left - n*each; n < most && rest > 0 && rest < leastBytes {
				t.Fatalf("a batch of %d leaves %d of %d bytes", n, rest, left)
			}
			if n < most && 2*n*each < left-2*each {
				t.Fatalf("a batch of %d is less than half of %d bytes", n, left)
			}
		}
	}
}
