package onesided

import (
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// TestUncheckedEpochsCount has epochs whose posts nobody is told of among others: they
// count as posted, so that a post too many is still seen.
func TestUncheckedEpochsCount(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a, back := f.access(0, 1), f.access(1, 0)
	e, target := f.e[0], f.e[1]
	for epoch := range uint64(6) {
		unchecked := epoch%3 < 2
		target.Post(back, unchecked)
		if unchecked {
			e.StartPosted(a)
		} else {
			e.Start(a)
		}
		f.issue(e, &Call{Access: a, Code: wire.CodePut, Origin: word(epoch)})
		f.issue(e, &Call{Access: a, Code: wire.CodeComplete})
		f.Until(1000*millisecond, func() bool { return !back.Exposing() })
		if got := le.Uint64(f.mem[1]); got != epoch || a.Starting() {
			t.Errorf("epoch %d: the window has %d", epoch, got)
		}
	}
	target.Post(back, false)
	f.Settle()
	post := wire.Record{Code: wire.CodePost, Window: testWindow}
	if class := e.applyRecord(a.session, &link.Bundle{Session: a.session.Session}, &post); class != mpierr.RMASync {
		t.Errorf("a post beside one that is not over: %v", class)
	}
	e.Start(a)
	f.issue(e, &Call{Access: a, Code: wire.CodeComplete})
	f.Until(1000*millisecond, func() bool { return !back.Exposing() })
	f.atRest()
}
