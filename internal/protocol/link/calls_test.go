package link_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/credentials"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// TestCallsTakeTurns has a rank dial many others. It calls a few at a time, and the silence of
// those that wait for their turn counts from their turn on.
func TestCallsTakeTurns(t *testing.T) {
	const ranks, turns = 40, 16
	for _, keyed := range []bool{false, true} {
		f := newRanks(t, ranks, nil)
		if keyed {
			f = newMembers(t, ranks, secure.Sign, nil)
		}
		called, answers := map[int]int{}, false
		f.Filter = func(from, to int, b []byte) int {
			if kindOf(b) == wire.KindHello && from == 0 {
				called[to]++
			}
			if answers || from == 0 {
				return 1
			}
			return 0
		}
		var all []*peer
		for to := 1; to < ranks; to++ {
			all = append(all, f.dial(0, to))
		}
		f.Pass(10 * millisecond)
		if len(called) != turns {
			t.Errorf("%d ranks are called at once, not %d", len(called), turns)
		}
		f.Pass(1000 * millisecond) // the first calls give up their turns
		if len(called) != ranks-1 {
			t.Errorf("%d ranks are called while others are silent, not all %d", len(called), ranks-1)
		}
		answers = true
		f.Until(1000*millisecond, func() bool {
			for _, p := range all {
				if !p.Open() {
					return false
				}
			}
			return true
		})
		for _, p := range all {
			f.transfer(p, 0, 100)
		}
	}
}

// TestWaitingForATurnIsNoSilence has more ranks be silent than have turns. The last ones are given
// up later than the first.
func TestWaitingForATurnIsNoSilence(t *testing.T) {
	const ranks = 18
	f := newRanks(t, ranks, nil)
	f.Filter = func(int, int, []byte) int { return 0 }
	first := f.dial(0, 1)
	var last *peer
	for to := 2; to < ranks; to++ {
		last = f.dial(0, to)
	}
	f.Until(2*testLimit, first.Dead)
	if last.Dead() {
		t.Error("a peer that was called later was given up at the same time")
	}
	f.Until(testLimit, last.Dead)
}

// TestHelloThatIsThereIsAnswered has a rank dial another whose hello is being verified. It answers
// that hello, and sends none.
func TestHelloThatIsThereIsAnswered(t *testing.T) {
	for _, dialer := range []int{0, 1} {
		var later []func()
		f := newMembers(t, 2, secure.Seal, nil)
		f.start(1-dialer, 1, 2, func(c *link.Config) {
			c.Offload = func(work, done func()) bool {
				later = append(later, func() { work(); done() })
				return true
			}
		})
		hellos := [2]int{}
		f.Filter = func(from, _ int, b []byte) int {
			if kindOf(b) == wire.KindHello {
				hellos[from]++
			}
			return 1
		}
		a := f.dial(dialer, 1-dialer)
		f.Until(100*millisecond, func() bool { return len(later) == 1 })
		b := f.dial(1-dialer, dialer)
		f.Pass(millisecond)
		for len(later) > 0 {
			later[0]()
			later = later[1:]
		}
		f.Until(100*millisecond, func() bool { return a.Open() && b.Open() })
		if hellos[1-dialer] != 0 {
			t.Errorf("rank %d has a hello to answer, and sends %d", 1-dialer, hellos[1-dialer])
		}
		f.both()
	}
}

// TestSlowPeerIsSentLittleTwice has acknowledgements take longer than the longest timeout of a
// peer that is silent. Once that is known, nothing is sent again, nor to a peer of which less is known.
func TestSlowPeerIsSentLittleTwice(t *testing.T) {
	f := newRanks(t, 3, nil)
	slow := func(p *peer) (again uint64) {
		before := f.e[0].Stats.Resent
		release := f.Detain(p.Rank(), 0)
		p.put(8, 0, wire.FlagAckNow)
		f.Pass(300 * millisecond)
		release()
		f.Until(millisecond, p.over)
		return f.e[0].Stats.Resent - before
	}
	p := f.open(0, 1)
	if slow(p) == 0 {
		t.Error("nothing is sent again before the round trip is known")
	}
	for range 20 {
		slow(p)
	}
	if again := slow(p); again > 0 {
		t.Errorf("a bundle was sent again %d times", again)
	}
	if again := slow(f.open(0, 2)); again > 1 {
		t.Errorf("a bundle to another peer was sent again %d times", again)
	}
}

// TestLateAnswerOfAnEarlierLife has an answer of a rank be looked at when a hello of its next life
// has been answered. The session with that life opens all the same.
func TestLateAnswerOfAnEarlierLife(t *testing.T) {
	f := newMembers(t, 2, secure.Seal, nil)
	var later []func()
	delays := false
	f.start(1, 1, 2, func(c *link.Config) {
		c.Offload = func(work, done func()) bool {
			if delays {
				later = append(later, func() { work(); done() })
			} else {
				work()
				done()
			}
			return true
		}
	})
	f.dial(1, 0)
	f.Filter = func(from, _ int, b []byte) int {
		delays = delays || from == 0 && kindOf(b) == wire.KindHelloAck
		return 1
	}
	f.Until(100*millisecond, func() bool { return len(later) == 1 }) // the answer has come
	f.Filter, delays = nil, false
	f.start(0, 2, 2, nil)
	p := f.dial(0, 1)
	f.Step() // its hello is answered
	f.Cut[0] = true
	f.Step()
	later[0]()
	f.Settle()
	f.Cut[0] = false
	f.transfer(p, 0, 1000)
}

// TestIDIsTakenOnce has a session fail while a hello of its peer is answered under its id. The next
// session with the peer has another id.
func TestIDIsTakenOnce(t *testing.T) {
	f := newMembers(t, 2, secure.Seal, nil)
	var route []func()
	f.start(1, 1, 2, func(c *link.Config) {
		c.Route = func(_ *secure.Ticket, done func(link.PathID)) { route = append(route, func() { done(0) }) }
	})
	first := f.e[1].Connect(0).ID()
	p := f.dial(0, 1)
	f.Settle()
	if len(route) != 1 {
		t.Fatalf("%d hellos are answered", len(route))
	}
	f.e[1].NotFound(0, errors.New("nobody knows"))
	if again := f.e[1].Connect(0).ID(); again == first {
		t.Errorf("the id %x names two sessions", first)
	}
	route[0]()
	f.Until(100*millisecond, func() bool { return len(route) == 2 }) // the hello comes again
	route[1]()
	f.transfer(p, 0, 1000)
}

// TestForgedTicketsStopNoCall has a member send tickets that it has made up, and looking at one takes long. A peer
// that is silent is called all the same, and given up in time.
func TestForgedTicketsStopNoCall(t *testing.T) {
	f := newMembers(t, 2, secure.Seal, nil)
	var later []func()
	f.start(0, 1, 2, func(c *link.Config) {
		c.Offload = func(work, done func()) bool {
			later = append(later, func() { work(); done() })
			return true
		}
	})
	f.Cut[1] = true
	p := f.dial(0, 1)
	f.Settle()
	later[0]() // its hello
	forged := make([]byte, wire.GreetingLen)
	g := wire.Greeting{Kind: wire.KindTicket, Ticket: bytes.Clone(credentials.Of(1, 2, secure.Seal).Ticket), TargetLife: 1}
	g.Ticket[len(g.Ticket)-1] ^= 1
	g.Put(forged, (*siphash.Key)(&credentials.Secrets.Hello))
	for end := f.Now + testLimit + 200*millisecond; f.Now < end; f.Pass(millisecond) {
		f.e[0].Receive(bytes.Clone(forged), 1)
	}
	if len(later) < 2 {
		t.Error("no forged ticket was verified")
	}
	if !p.Dead() {
		t.Error("a silent peer is not given up")
	}
}

// TestPeerAtWorkIsNotGivenUp has a peer take several times the limit to compute its part of a handshake,
// whoever dials. It is given up if it never ends.
func TestPeerAtWorkIsNotGivenUp(t *testing.T) {
	for _, c := range []struct {
		slow    int
		dialers []int
	}{{1, []int{0}}, {1, []int{0, 1}}, {1, []int{1, 0}}, {0, []int{1}}, {0, []int{0, 1}}, {0, []int{1, 0}}} {
		var later []func()
		f := newMembers(t, 2, secure.Seal, nil)
		f.start(c.slow, 1, 2, func(c *link.Config) {
			c.Offload = func(work, done func()) bool {
				later = append(later, func() { work(); done() })
				return true
			}
		})
		var all []*peer
		for _, from := range c.dialers {
			all = append(all, f.dial(from, 1-from))
			f.Pass(millisecond)
		}
		open := func() bool { return f.at(0, 1) != nil && f.at(0, 1).Open() && f.at(1, 0) != nil && f.at(1, 0).Open() }
		for rounds := 0; !open(); rounds++ {
			if rounds > 10 {
				t.Fatalf("rank %d is slow, %v dial: the session does not open", c.slow, c.dialers)
			}
			f.Pass(3 * testLimit)
			for _, p := range all {
				if p.Dead() {
					t.Fatalf("rank %d is slow, %v dial: %v", c.slow, c.dialers, p.Err())
				}
			}
			now := later
			later = nil
			for _, work := range now {
				work()
			}
			f.Pass(millisecond)
		}
		f.transfer(f.at(0, 1), 0, 1000)
	}
	f := newMembers(t, 2, secure.Seal, nil)
	f.start(1, 1, 2, func(c *link.Config) { c.Offload = func(_, _ func()) bool { return true } })
	p := f.dial(0, 1)
	f.Until(14*testLimit, p.Dead)
	if !strings.Contains(p.Err().Error(), "was working at the handshake") {
		t.Error(p.Err())
	}
}

// TestRepeatsThatComeTogetherAreAnsweredOnce has a rank without a processor for long find many repeats of
// a hello at once, before its answer is there and after that. A repeat that comes later is answered again.
func TestRepeatsThatComeTogetherAreAnsweredOnce(t *testing.T) {
	var later []func()
	f := newMembers(t, 2, secure.Seal, nil)
	f.start(1, 1, 2, func(c *link.Config) {
		c.Offload = func(work, done func()) bool {
			later = append(later, func() { work(); done() })
			return true
		}
	})
	var hello []byte
	sent := map[wire.Kind]int{}
	f.Filter = func(from, _ int, b []byte) int {
		if from == 1 {
			sent[kindOf(b)]++
			return 0
		}
		hello = bytes.Clone(b)
		return 0
	}
	f.dial(0, 1)
	f.Until(100*millisecond, func() bool { return hello != nil })
	repeat := func(times int) {
		for range times {
			f.e[1].Receive(bytes.Clone(hello), 0)
		}
		f.Settle()
	}
	repeat(20)
	if sent[wire.KindTicket] != 1 || len(later) != 1 {
		t.Errorf("of a hello at work its sender is told %d times, %d are worked at", sent[wire.KindTicket], len(later))
	}
	later[0]()
	repeat(20)
	if sent[wire.KindHelloAck] != 1 {
		t.Errorf("20 hellos that come at once are answered %d times", sent[wire.KindHelloAck])
	}
	f.Pass(5 * millisecond)
	repeat(1)
	if sent[wire.KindHelloAck] != 2 {
		t.Errorf("a hello that comes again later makes it %d answers", sent[wire.KindHelloAck])
	}
}

// lossy has three of ten frames get lost.
func lossy() func(int, int, []byte) int {
	rng := rand.New(rand.NewPCG(1, 2))
	return func(int, int, []byte) int {
		if rng.IntN(10) < 3 {
			return 0
		}
		return 1
	}
}

// TestLongLimitDelaysNoHandshake has frames get lost where silence counts late: greetings are repeated no later
// for that than after a second, or two where the peer has said that it is at work.
func TestLongLimitDelaysNoHandshake(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		for _, limit := range []int64{5000, 40_000, 3_600_000} {
			for range 50 {
				change := func(c *link.Config) { c.DeadAfter = limit * millisecond }
				f := newRanks(t, 2, change)
				if keyed {
					f = newMembers(t, 2, secure.Sign, change)
				}
				f.Filter = lossy()
				p := f.dial(0, 1)
				f.Until(4000*millisecond, p.Open)
			}
		}
	}
}

// TestSlowPeerDelaysNoOthers has a rank know one that answers late, and then dial others, while frames get lost.
// Each is found long before the limit.
func TestSlowPeerDelaysNoOthers(t *testing.T) {
	for range 5 {
		f := newRanks(t, 24, nil)
		slow := f.open(0, 1)
		for range 12 {
			release := f.Detain(1, 0)
			slow.put(8, 0, 1)
			slow.push()
			f.Pass(300 * millisecond)
			release()
			f.Until(2000*millisecond, slow.over)
		}
		f.Filter = lossy()
		var others []*peer
		for rank := 2; rank < 24; rank++ {
			others = append(others, f.dial(0, rank))
		}
		for _, p := range others {
			f.Until(testLimit/2, p.Open)
		}
	}
}
