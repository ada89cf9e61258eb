package engine

import (
	"errors"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// A process that reaches nobody any more fails what waits for any rank, whether or not
// its session is open, and says why.
func TestIsolationFailsAllSessions(t *testing.T) {
	f := newRanks(t, 3, 64, nil)
	f.dial(0, 1)
	f.Settle()
	f.Cut[2] = true
	cause := errors.New("the interface is gone")
	var open []*onesided.Access
	for _, rank := range []int{1, 2} {
		a := f.e[0].OpenAccess(f.dial(0, rank), testWindow)
		f.issue(f.e[0], &onesided.Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8)})
		f.e[0].Flush(a)
		open = append(open, a)
	}
	f.e[0].Isolate(cause)
	for _, a := range open {
		if !(*onesided.FlushWait)(a).Met() {
			t.Error("a flush goes on")
		}
		if err := a.TakeError(); !errors.Is(err, cause) || !errors.Is(err, mpierr.ProcFailed) {
			t.Error(err)
		}
	}
}
