package onesided

import (
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// TestFetchesAreForgotten gets what a peer offers many times, and something else that it
// does not: each ends once, and the rank keeps nothing of them.
func TestFetchesAreForgotten(t *testing.T) {
	f := newRanks(t, 2, 8, nil)
	s := f.access(0, 1).session
	kept := len(s.access)
	into := make([]byte, wire.MaxPart+1)
	for i := range 2 * keptFetches {
		var ends []*mpierr.Error
		id, want := uint32(offer), mpierr.Success
		if i%2 == 1 {
			id, want = offer+1, mpierr.Win
		}
		f.e[0].Fetch(s, id, into, &ends)
		f.Until(1000*millisecond, func() bool { return len(ends) > 0 })
		if f.Settle(); len(ends) != 1 || (ends[0] == nil) != (want == mpierr.Success) || ends[0] != nil && ends[0].Class != want {
			t.Fatalf("%#x ends with %v", id, ends)
		}
	}
	f.atRest()
	if n := len(s.access); n != kept || len(f.e[0].fetches) > keptFetches {
		t.Errorf("%d accesses are kept, %d fetches", n, len(f.e[0].fetches))
	}
}
