package link_test

import (
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// directory is what ranks have published, as one of them knows it.
type directory struct {
	lives  map[int]uint64 // rank r is at path r
	asked  []int          // the ranks that were asked for in vain
	called int
}

func (d *directory) published(rank int, incarnation uint64, path link.PathID) link.Verdict {
	d.called++
	switch known := d.lives[rank]; {
	case incarnation > known:
		d.asked = append(d.asked, rank)
		return link.Unknown
	case incarnation == known && path == link.PathID(rank):
		return link.Confirmed
	}
	return link.Refuted
}

// withDirectory starts ranks, of which the first believes only what d says.
func withDirectory(t *testing.T, d *directory) *ranks {
	return newRanks(t, 3, func(c *link.Config) {
		if c.Rank == 0 {
			c.Published = d.published
		}
	})
}

// helloOf returns the frame of a hello to rank 0.
func helloOf(rank int, incarnation, session uint64) []byte {
	h := wire.Hello{Job: testJob, Incarnation: incarnation, Session: session, Rank: uint32(rank), MaxPayload: 1472, Credits: 4}
	b := make([]byte, wire.HeaderLen+wire.HelloLen)
	h.Encode(b[wire.HeaderLen:])
	(&wire.Header{Kind: wire.KindHello}).Encode(b)
	return b
}

// TestForgedHelloTakesNoPlace sends a rank hellos that claim to be of another one, from
// elsewhere, or in another life: no session begins, and the one that there is goes on.
func TestForgedHelloTakesNoPlace(t *testing.T) {
	d := &directory{lives: map[int]uint64{1: 1}}
	f := withDirectory(t, d)
	const elsewhere = 2
	forge := func(incarnation uint64, path link.PathID) {
		t.Helper()
		before := f.e[0].Stats
		f.e[0].Receive(helloOf(1, incarnation, 666), path)
		f.Settle()
		if after := f.e[0].Stats; after.Refuted+after.Unverified != before.Refuted+before.Unverified+1 {
			t.Errorf("incarnation %d, path %d: not counted: %+v", incarnation, path, after)
		}
	}
	forge(1, elsewhere)
	forge(2, elsewhere)
	forge(2, 1)
	forge(1<<63, elsewhere)
	if f.e[0].Session(1) != nil {
		t.Fatal("a forged hello began a session")
	}
	f.e[0].Learned(1) // the answer was that nothing is new
	back := f.open(1, 0)
	s := f.e[0].Session(1)
	forge(1, elsewhere)
	forge(2, elsewhere)
	forge(1<<63, 1)
	f.e[0].Learned(1)
	f.Settle()
	if f.e[0].Session(1) != s || !s.Open() || s.Life() != 1 {
		t.Fatalf("the session was replaced: open %t, life %d", s.Open(), s.Life())
	}
	f.transfer(back, 1, 8) // the genuine rank
	f.AtRest()
}

// TestHelloWaitsForItsVerdict has a rank's first and second life greet one that does not
// know them yet: the caller is asked, and the session opens when it knows.
func TestHelloWaitsForItsVerdict(t *testing.T) {
	d := &directory{lives: map[int]uint64{}}
	f := withDirectory(t, d)
	for life := uint64(1); life <= 2; life++ {
		d.asked = nil
		if life > 1 {
			f.start(1, life, 3, nil)
		}
		before := f.e[0].Session(1)
		s := f.dial(1, 0)
		f.Settle()
		if len(d.asked) != 1 || d.asked[0] != 1 || s.Open() || f.e[0].Session(1) != before {
			t.Fatalf("life %d: asked for %v, open %t", life, d.asked, s.Open())
		}
		d.lives[1] = life
		f.e[0].Learned(1)
		f.Settle()
		if !s.Open() || f.e[0].Session(1).Life() != life {
			t.Fatalf("life %d: open %t after it was known", life, s.Open())
		}
		called := d.called
		f.e[0].Learned(1) // nothing waits any more
		if d.called != called || len(d.asked) != 1 {
			t.Errorf("life %d: asked for %v", life, d.asked)
		}
	}
	f.AtRest()
}

// TestRepeatedHelloIsBelievedWhenKnown has a forged hello take the place of the genuine one
// that waits: the genuine one's repetition opens the session.
func TestRepeatedHelloIsBelievedWhenKnown(t *testing.T) {
	d := &directory{lives: map[int]uint64{}}
	f := withDirectory(t, d)
	s := f.dial(1, 0)
	f.Settle()
	f.e[0].Receive(helloOf(1, 5, 666), 2)
	d.lives[1] = 1
	f.e[0].Learned(1)
	f.Settle()
	if s.Open() {
		t.Fatal("the forged hello did not take the place of the other: the test tests nothing")
	}
	f.Until(1000*millisecond, s.Open)
	f.AtRest()
}
