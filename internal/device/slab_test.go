package device

import (
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// TestDetachedSlab writes to slots whose memory has gone.
func TestDetachedSlab(t *testing.T) {
	for _, headroom := range []int{0, headroom} {
		s := engine.HeapSlab(32, headroom, wire.MinPayload)
		s.Mem = nil
		s.Detach()
		for i := range int32(s.Slots) {
			if b := s.Payload(i); len(b) != wire.MinPayload || cap(b) != wire.MinPayload {
				t.Fatalf("slot %d has %d bytes, %d at most", i, len(b), cap(b))
			}
		}
	}
}
