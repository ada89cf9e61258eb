package link_test

import (
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// acknowledge lets the peer of a session say that it has applied all requests and
// responses below these, and name no packet that it has received.
func (f *ranks) acknowledge(s *peer, rank, from int, requests, responses uint64) {
	b := make([]byte, wire.HeaderLen)
	h := wire.Header{Kind: wire.KindAck, Session: s.ID(), Credits: 64, AckRequests: requests, AckResponses: responses}
	h.Encode(b)
	f.e[rank].Receive(b, link.PathID(from))
}

// fullWindow has rank 0 send more than may be under way at once, while
// nothing arrives. The first request that has not been sent is told all the time.
func fullWindow(t *testing.T) (f *ranks, s *peer, unsent *uint64) {
	t.Helper()
	f = newRanks(t, 2, func(c *link.Config) { c.Slab = link.HeapSlab(1024, 0, 1472) })
	s = f.open(0, 1)
	f.Pass(3000 * millisecond) // until nothing is outstanding
	unsent = new(uint64)
	f.Filter = func(from, _ int, b []byte) int {
		var h wire.Header
		if h.Decode(b) == wire.OK && from == 0 && h.Kind == wire.KindData && h.Flags&wire.FlagResponse == 0 {
			*unsent = max(*unsent, h.Sequence+1)
		}
		return 0
	}
	for range 200 {
		s.write(&transfer{left: 1400})
	}
	s.push()
	f.Settle()
	if *unsent == 0 || *unsent >= s.Next(link.Request) {
		t.Fatalf("sent up to %d of %d\n%s", *unsent, s.Next(link.Request), f.Describe())
	}
	return f, s, unsent
}

// TestAcknowledgedBeforeSent has a peer acknowledge bundles that still wait for the window,
// or were never there: it is counted, and nothing is taken for applied.
func TestAcknowledgedBeforeSent(t *testing.T) {
	f, s, unsent := fullWindow(t)
	acked, sent := s.Acked(link.Request), *unsent
	for i, forged := range []struct{ requests, responses uint64 }{{sent + 1, 1}, {s.Next(link.Request), 1}, {1, 2}} {
		f.acknowledge(s, 0, 1, forged.requests, forged.responses)
		if got := f.e[0].Stats.BadAcks; got != uint64(i+1) || s.Acked(link.Request) != acked {
			t.Errorf("%+v: %d bad acknowledgements, applied up to %d; want %d and %d", forged, got, s.Acked(link.Request), i+1, acked)
		}
	}
	f.acknowledge(s, 0, 1, sent, 1)
	if got := f.e[0].Stats.BadAcks; got != 3 || s.Acked(link.Request) != sent {
		t.Errorf("of what was sent: %d bad acknowledgements, applied up to %d; want 3 and %d", got, s.Acked(link.Request), sent)
	}
}

// TestAppliedWithoutAPacket has a peer say that it has applied all that was sent, and name
// no packet of it. The queue goes on at the timeout, long before the peer is asked for a
// sign of life, and nothing counts against the path.
func TestAppliedWithoutAPacket(t *testing.T) {
	f, s, unsent := fullWindow(t)
	f.acknowledge(s, 0, 1, *unsent, 1)
	sent := *unsent
	f.Until(100*millisecond, func() bool { return *unsent > sent })
	if n := f.e[0].Stats.Timeouts; n != 0 {
		t.Errorf("%d timeouts", n)
	}
}

// TestAppliedLateIsNotOverdue loses a record for as long as a peer may be silent, though the
// peer is heard. Then the peer is told in time to have it: by a copy that left before, whose
// acknowledgement was held back, or by the last copy. It is not given up.
func TestAppliedLateIsNotOverdue(t *testing.T) {
	const limit = 1000 * millisecond
	for name, early := range map[string]bool{"an earlier copy": true, "the last copy": false} {
		t.Run(name, func(t *testing.T) {
			f := newRanks(t, 2, func(c *link.Config) { c.DeadAfter = limit })
			s, back := f.open(0, 1), f.open(1, 0)
			f.Pass(3000 * millisecond) // until nothing is outstanding
			target, sends, since, last := s.Next(link.Request), 0, int64(0), int64(0)
			over, told := false, false
			f.Filter = func(from, _ int, b []byte) int {
				var h wire.Header
				switch {
				case h.Decode(b) != wire.OK || told && !early:
				case from == 1 && h.AckRequests > target: // one alone, which names no packet after the earlier copy
					if !over || told {
						return 0
					}
					told = true
				case from == 0 && h.Kind == wire.KindData && h.Flags&wire.FlagResponse == 0 && h.Sequence == target:
					if sends++; sends == 4 { // from then on it may be overdue
						since = f.Now
					}
					before := last
					last = f.Now
					switch {
					case sends < 4:
					case early && before-since < limit/2 && last-since >= limit/2:
						return 1
					case early:
						over = last-since >= limit
					case before-since >= limit: // which is found just now
						told = true
						return 1
					}
					return 0
				}
				return 1
			}
			s.put(8, 0, 0)
			s.push()
			for end := f.Now + 4*limit; !told; f.Pass(millisecond) {
				if f.Now > end {
					t.Fatalf("%d transmissions\n%s", sends, f.Describe())
				}
				if f.Now%(300*millisecond) < millisecond { // rank 1 is heard
					back.ask(8)
				}
			}
			f.Pass(limit / 2)
			if s.Dead() || s.Acked(link.Request) <= target {
				t.Errorf("dead: %v (%v), applied up to %d, of %d", s.Dead(), s.Failure(), s.Acked(link.Request), target)
			}
			f.once(s, 0)
		})
	}
}
