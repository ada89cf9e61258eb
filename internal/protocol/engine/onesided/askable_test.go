package onesided

import (
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// A record asks for something, for no more than it may, and for all that is left or as much
// as fills bundles.
func TestRecordsAskForWholeBundles(t *testing.T) {
	for payload := wire.MinPayload; payload < 1<<16; payload += 13 {
		each := (payload - wire.HeaderLen - wire.RecordLen) &^ 7
		for _, left := range []int{1, 8, each, each + 1, wire.MaxPart, wire.MaxPart + 1, 1 << 20} {
			n := askable(payload, left)
			if n < 1 || n > min(left, wire.MaxPart) {
				t.Fatalf("of %d bytes a record asks for %d, with a payload of %d", left, n, payload)
			}
			if n < left && each <= wire.MaxPart && (n%each > 0 || n+each <= wire.MaxPart) {
				t.Fatalf("of %d bytes a record asks for %d, where a bundle has %d", left, n, each)
			}
		}
	}
}
