package link_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/credentials"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// The error about a peer that lives and does not get what it is sent says how long it is. Long ones
// suggest the MTU.
func TestLostFramesAreNamed(t *testing.T) {
	for _, c := range []struct {
		puts int
		lost func(b []byte, h *wire.Header) bool // on the way to the peer
		want string
	}{
		{100, func(b []byte, _ *wire.Header) bool { return len(b) > 1000 }, "`ping -M do -s 1232` to the peer's host shows it, and frames need an MTU of 1280 bytes"},
		{100, func(b []byte, _ *wire.Header) bool { return len(b) > 1000 }, "unless the log of the peer says that its XDP program was taken, the MTU of a link on the way is"},
		{1, func(_ []byte, h *wire.Header) bool { return h.Kind == wire.KindData && h.Sequence != 0 }, "unless the log of the peer says that its XDP program was taken, see that no firewall on the way stops UDP in this direction"},
	} {
		f := newRanks(t, 2, func(conf *link.Config) {
			conf.DeadAfter = 1000 * millisecond
			conf.Address = func(p link.PathID) string { return fmt.Sprint("the host behind path ", p) }
			conf.Trouble = func(int64) string { return "frames to this rank get lost" } // but not those to the peer
		})
		s, back := f.open(0, 1), f.open(1, 0)
		f.Pass(3000 * millisecond) // until nothing is outstanding
		f.Filter = func(from, _ int, b []byte) int {
			var h wire.Header
			if h.Decode(b); from == 0 && c.lost(b, &h) {
				return 0
			}
			return 1
		}
		for range c.puts {
			s.put(8, 0, 0)
		}
		s.push()
		for end := f.Now + 20000*millisecond; !s.Dead() && f.Now < end; f.Pass(millisecond) {
			if f.Now%(300*millisecond) < millisecond && !back.Dead() { // rank 1 is heard
				back.ask(8)
			}
		}
		err := s.Err()
		if !errors.Is(err, mpierr.ProcFailed) || !strings.Contains(err.Error(), "within the limit of 1.0 s") || !strings.Contains(err.Error(), "(rank 1)") ||
			!strings.Contains(err.Error(), " to the host behind path ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d puts: %v", c.puts, err)
		} else {
			t.Log(err)
		}
	}
}

// The error about a silent peer says where it was looked for, and whether a frame ever
// came from there.
func TestSilenceNamesThePeer(t *testing.T) {
	for _, c := range []struct {
		heard   bool
		trouble string
		want    string
	}{
		{false, "", "no frame has ever come from the host behind path 1; see that the rank runs, and that no firewall"},
		{true, "", "the last frame from the host behind path"},
		{false, "this is why", "and that no firewall on the way stops UDP; this is why"},
		{true, "this is why", " ago; this is why"},
	} {
		f := newRanks(t, 2, func(conf *link.Config) {
			conf.Address = func(p link.PathID) string { return fmt.Sprint("the host behind path ", p) }
			conf.Trouble = func(silent int64) string {
				if silent < 1000*millisecond {
					t.Errorf("asked for %v", silent)
				}
				return c.trouble
			}
		})
		s := f.dial(0, 1)
		if c.heard {
			f.Settle()
		}
		f.Cut[1] = true
		f.ask(s, 8)
		s.push()
		f.Until(20000*millisecond, s.over)
		err := s.Err()
		if !errors.Is(err, mpierr.ProcFailed) || !strings.Contains(err.Error(), "not heard of within the limit") ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("heard %v: %v", c.heard, err)
		} else {
			t.Log(err)
		}
	}
}

// TestLateRankExcusesOthers has a rank run only once a second, as on a host that lacks processors. The time
// that it missed is no silence of its peer, which it gives up in the end.
func TestLateRankExcusesOthers(t *testing.T) {
	for _, dials := range []bool{true, false} {
		f := newRanks(t, 2, nil)
		var p *peer
		if dials {
			f.Cut[1] = true
			p = f.dial(0, 1)
		} else {
			p = f.open(0, 1)
			f.Pass(millisecond)
			f.Cut[1] = true
			p.ask(8)
			p.push()
		}
		jumps := 0
		for ; !p.Dead() && jumps < 1000; jumps++ {
			f.Advance(f.Now + 1000*millisecond)
			f.Settle()
		}
		if jumps < 10 || jumps == 1000 {
			t.Errorf("dials %t: a silent peer is given up after running %d times, which took as many seconds", dials, jumps)
		}
	}
}

// TestLateRankNoticesDeaths has a rank run late all the time, while it deals with a third one, which has its
// timers be due at once. All the same it gives up a dead peer before four times the limit is over, and a little.
func TestLateRankNoticesDeaths(t *testing.T) {
	for _, period := range []int64{20, 60, 100, 1000} {
		f := newRanks(t, 3, nil)
		dead, lives := f.open(0, 1), f.open(0, 2)
		f.Pass(millisecond)
		f.Cut[1] = true
		dead.ask(8)
		dead.push()
		begin := f.Now
		for !dead.Dead() && f.Now-begin < 10*testLimit {
			f.Advance(f.Now + period*millisecond)
			lives.put(8, 0, 0)
			f.Settle()
			lives.put(8, 0, 0)
		}
		if took := f.Now - begin; took > 5*testLimit || lives.Dead() {
			t.Errorf("a rank that runs every %d ms notices a death after %d ms; the one that lives is dead: %t", period, took/millisecond, lives.Dead())
		}
	}
}

// TestReplayedTicketsProlongNothingForEver has somebody repeat what a peer that is dead said of itself, to
// a rank that runs late.
func TestReplayedTicketsProlongNothingForEver(t *testing.T) {
	for _, period := range []int64{20, 100} {
		f := newMembers(t, 3, secure.Seal, nil)
		other := f.open(0, 2)
		f.Cut[1] = true
		g := wire.Greeting{Kind: wire.KindTicket, Ticket: credentials.Of(1, 1, secure.Seal).Ticket, TargetLife: 1, Target: 0}
		frame := make([]byte, wire.GreetingLen)
		g.Put(frame, (*siphash.Key)(&credentials.Secrets.Hello))
		p := f.dial(0, 1)
		p.ask(8)
		begin := f.Now
		for !p.Dead() && f.Now-begin < 30*testLimit {
			f.Advance(f.Now + period*millisecond)
			f.e[0].Receive(frame, 1)
			other.put(8, 0, 0)
			f.Settle()
			other.put(8, 0, 0)
		}
		if took := f.Now - begin; took < 12*testLimit || took > 17*testLimit {
			t.Errorf("a rank that runs every %d ms gives it up after %d ms", period, took/millisecond)
		}
	}
}

// TestHelloThatIsNeverMadeEnds has a rank call one whose key allows no handshake, and be without time to
// make its own hello.
func TestHelloThatIsNeverMadeEnds(t *testing.T) {
	t.Run("key", func(t *testing.T) {
		f := newMembers(t, 2, secure.Seal, nil)
		ticket := credentials.Ticket(1, 1, secure.Seal)
		ticket.Static = [32]byte{} // of low order
		p := f.e[0].DialBy(link.PathID(1), ticket).Upper.(*peer)
		p.ask(8)
		f.Settle()
		if err := p.Err(); !errors.Is(err, mpierr.ProcFailed) || !strings.Contains(err.Error(), "its ticket's key") {
			t.Error(err)
		}
	})
	t.Run("time", func(t *testing.T) {
		f := newMembers(t, 2, secure.Seal, func(c *link.Config) {
			c.Offload = func(_, _ func()) bool { return false }
		})
		p := f.dial(0, 1)
		p.ask(8)
		f.Until(14*testLimit, p.over)
		if !errors.Is(p.Err(), mpierr.ProcFailed) {
			t.Error(p.Err())
		}
	})
}
