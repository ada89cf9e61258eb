package engine

import (
	"errors"
	"testing"

	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// TestConnectBeforeTheWayIsKnown queues calls for a peer that nobody knows the way to. They
// arrive when it is known, or when the peer dials, and fail when there is none. Meanwhile
// the rank waits for nothing.
func TestConnectBeforeTheWayIsKnown(t *testing.T) {
	for _, how := range []string{"found", "dialled by the peer", "not found"} {
		t.Run(how, func(t *testing.T) {
			sought := 0
			f := newRanks(t, 2, 64, func(c *Config) { c.Seek = func(int) { sought++ } })
			e := f.e[0]
			s := e.Connect(1)
			if again := e.Connect(1); again != s || sought != 1 {
				t.Errorf("the second is another session, or its way was sought %d times", sought)
			}
			a := e.OpenAccess(s, testWindow)
			f.issue(e, &onesided.Call{Access: a, Code: wire.CodePut, Origin: word(7)})
			e.Flush(a)
			f.Pass(20_000 * millisecond)
			if (*onesided.FlushWait)(a).Met() || s.Err() != nil || f.Frames > 0 {
				t.Fatalf("before the way is known: flushed %v, %d frames, %v", (*onesided.FlushWait)(a).Met(), f.Frames, s.Err())
			}
			switch how {
			case "found":
				if f.dial(0, 1) != s {
					t.Fatal("the session is another")
				}
			case "dialled by the peer":
				f.dial(1, 0)
				f.Settle()
			default:
				e.Unreachable(1, errors.New("no way"))
			}
			err := f.flush(e, a)
			if how == "not found" {
				if !errors.Is(err, mpierr.ProcFailed) {
					t.Errorf("there is no way, and yet: %v", err)
				}
				f.Cut[0] = true
				return
			}
			if f.dial(0, 1) != s || err != nil || le.Uint64(f.mem[1]) != 7 {
				t.Errorf("the calls were not carried out: %v", err)
			}
			e.Unreachable(1, errors.New("too late"))
			if s.Err() != nil {
				t.Error(s.Err())
			}
			f.atRest()
		})
	}
}
