package link_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// deaf changes a frame so that it acknowledges nothing.
func deaf(b []byte) {
	var h wire.Header
	if h.Decode(b) == wire.OK && h.Kind >= wire.KindData {
		h.AckLargest, h.AckBits, h.AckRequests, h.AckResponses = 0, 0, 1, 1
		h.Encode(b)
	}
}

// TestPeerThatAcknowledgesNothingEnds has a peer ask for much and go on sending, but never
// acknowledge an answer: it is given up within the limit, whatever else it sends.
func TestPeerThatAcknowledgesNothingEnds(t *testing.T) {
	f := newRanks(t, 2, nil)
	a, back := f.open(1, 0), f.open(0, 1)
	f.Filter = func(from, _ int, b []byte) int {
		if from == 1 {
			deaf(b)
		}
		return 1
	}
	a.ask(1 << 20)
	back.put(8, 0, 0)
	back.push()
	for start := f.Now; !back.Dead(); {
		if f.Now-start > testLimit+testLimit/4 {
			t.Fatalf("it lives after %d ms\n%s", (f.Now-start)/millisecond, f.Describe())
		}
		a.put(8, 0, 0)
		f.Pass(10 * millisecond)
	}
	if err := back.Err(); !errors.Is(err, mpierr.ProcFailed) || !back.over() {
		t.Errorf("the flush: %v", err)
	}
	f.Cut[1] = true
	f.AtRest()
}

// TestLostBundlesBackOff loses every frame of more than 1300 bytes while small ones pass
// in both directions: each of the long ones is sent again now and then, and no more.
func TestLostBundlesBackOff(t *testing.T) {
	f := newRanks(t, 2, nil)
	a := f.open(0, 1)
	f.Pass(millisecond)
	long := 0
	f.Filter = func(from, _ int, b []byte) int {
		if len(b) > 1300 {
			long++
			return 0
		}
		return 1
	}
	a.write(&transfer{left: 10_000})
	for range 2000 {
		a.ask(8)
		f.Pass(millisecond)
	}
	if most := 8 * 25; long > most {
		t.Errorf("8 bundles were sent %d times in 2 s, want at most %d", long, most)
	}
}

// TestRefusedBundlesComeAgainWithTheirTurn has a peer with next to no room to park lose
// one bundle in ten: those that it has no room for back off, and come at once when what
// is before them has taken effect.
func TestRefusedBundlesComeAgainWithTheirTurn(t *testing.T) {
	f := newRanks(t, 2, func(c *link.Config) { c.Parked = 6 })
	a := f.open(0, 1)
	f.Pass(millisecond)
	rng := rand.New(rand.NewPCG(1, 2))
	f.Filter = func(from, _ int, b []byte) int {
		if from == 0 && rng.IntN(10) == 0 {
			return 0
		}
		return 1
	}
	long := &transfer{400 << 10, wire.FlagOrdered}
	f.Took(func() bool {
		done := a.write(long)
		a.push()
		return done && a.over()
	})
	f.once(a, 0)
}

// TestVoidDeadline has an acknowledgement ride on what follows, which makes its timer void: only
// LookAhead sees that, and it loses no timer that is still to come.
func TestVoidDeadline(t *testing.T) {
	f := newRanks(t, 2, nil)
	a := f.open(0, 1)
	f.transfer(a, 0, 8)
	f.Pass(1000 * millisecond)
	e := f.e[1]
	a.put(8, 0, 0)
	f.Settle()
	f.at(1, 0).put(8, 0, 0) // carries the acknowledgement
	f.Settle()
	before := e.Deadline()
	e.LookAhead()
	after := e.Deadline()
	if before == link.Never || after <= before {
		t.Errorf("the deadline was in %d µs, and is in %d", (before-f.Now)/microsecond, (after-f.Now)/microsecond)
	}
	e.LookAhead()
	if again := e.Deadline(); again != after {
		t.Errorf("the deadline is in %d µs, and then in %d", (after-f.Now)/microsecond, (again-f.Now)/microsecond)
	}
	f.transfer(a, 0, 8)
}
