package link_test

import (
	"errors"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/mpierr"
)

// TestConnectBeforeTheWayIsKnown queues records for a peer that nobody knows the way to. They
// arrive when it is known, or when the peer dials, and fail when there is none. Meanwhile
// the rank waits for nothing.
func TestConnectBeforeTheWayIsKnown(t *testing.T) {
	for _, how := range []string{"found", "dialled by the peer", "not found"} {
		t.Run(how, func(t *testing.T) {
			sought := 0
			f := newRanks(t, 2, func(c *link.Config) { c.Seek = func(int) { sought++ } })
			e := f.e[0]
			s := e.Connect(1).Upper.(*peer)
			if again := e.Connect(1); again != &s.Session || sought != 1 {
				t.Errorf("the second is another session, or its way was sought %d times", sought)
			}
			f.send(s, 8, 0)
			s.push()
			f.Pass(20_000 * millisecond)
			if s.over() || s.Err() != nil || f.Frames > 0 {
				t.Fatalf("before the way is known: over %v, %d frames, %v", s.over(), f.Frames, s.Err())
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
			err := f.flush(s)
			if how == "not found" {
				if !errors.Is(err, mpierr.ProcFailed) {
					t.Errorf("there is no way, and yet: %v", err)
				}
				f.Cut[0] = true
				return
			}
			if f.dial(0, 1) != s || err != nil {
				t.Errorf("the records did not arrive: %v", err)
			}
			f.once(s, 0)
			e.Unreachable(1, errors.New("too late"))
			if s.Err() != nil {
				t.Error(s.Err())
			}
			f.AtRest()
		})
	}
}

// TestNobodyKnowsTheWay ends the search for a peer with an answer that says nothing of whether
// it lives: what waits fails, and the next call looks again. The peer's own hello is welcome.
func TestNobodyKnowsTheWay(t *testing.T) {
	for _, who := range []string{"looks again", "is dialled"} {
		t.Run(who, func(t *testing.T) {
			sought := 0
			f := newRanks(t, 2, func(c *link.Config) { c.Seek = func(int) { sought++ } })
			e := f.e[0]
			s := e.Connect(1).Upper.(*peer)
			f.send(s, 8, 0)
			e.NotFound(1, errors.New("the rendezvous has gone"))
			if err := f.flush(s); !errors.Is(err, mpierr.ProcFailed) || !s.Unfound() || e.Session(1) != nil || e.Stats.PeersFailed != 0 {
				t.Fatalf("failed with %v, unfound %v, session %v, %d failed", err, s.Unfound(), e.Session(1) != nil, e.Stats.PeersFailed)
			}
			if who == "is dialled" {
				f.dial(1, 0)
				f.Settle()
			} else if e.Connect(1); sought != 2 {
				t.Errorf("the way was sought %d times", sought)
			}
			again := f.dial(0, 1)
			f.Until(1000*millisecond, again.Open)
			f.transfer(again, 0, 100)
			e.NotFound(1, errors.New("too late"))
			if again.Err() != nil {
				t.Error(again.Err())
			}
			f.AtRest()
		})
	}
}
