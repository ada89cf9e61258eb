package engine

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

const testLimit = 5000 * millisecond // Config.DeadAfter by default

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
	f := newRanks(t, 2, 1<<20, nil)
	a, back := f.access(1, 0), f.access(0, 1)
	f.Filter = func(from, _ int, b []byte) int {
		if from == 1 {
			deaf(b)
		}
		return 1
	}
	f.e[1].Issue(&onesided.Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 1<<20)})
	f.e[0].Issue(&onesided.Call{Access: back, Code: wire.CodePut, Origin: word(1)})
	f.e[0].Flush(back)
	for start := f.Now; !sessionAt(back).Dead(); {
		if f.Now-start > testLimit+testLimit/4 {
			t.Fatalf("it lives after %d ms\n%s", (f.Now-start)/millisecond, f.Describe())
		}
		f.e[1].Issue(&onesided.Call{Access: a, Code: wire.CodePut, Origin: word(1)})
		f.Pass(10 * millisecond)
	}
	if err := back.TakeError(); !errors.Is(err, mpierr.ProcFailed) || !(*onesided.FlushWait)(back).Met() {
		t.Errorf("the flush: %v", err)
	}
	f.Cut[1] = true
	f.atRest()
}

// TestSlowPeerLives has peers whose requests arrive, and take effect only much later than
// a silent peer is given up.
func TestSlowPeerLives(t *testing.T) {
	f := newRanks(t, 3, 64, nil)
	first, second := f.access(1, 0), f.access(2, 0)
	f.e[1].Lock(first, true)
	f.Until(1000*millisecond, (*onesided.LockWait)(first).Met)
	f.e[2].Lock(second, true)
	f.issue(f.e[2], &onesided.Call{Access: second, Code: wire.CodePut, Origin: word(7)})
	f.e[2].Flush(second)
	f.Pass(10 * testLimit)
	if sessionAt(first).Dead() || sessionAt(second).Dead() || (*onesided.LockWait)(second).Met() {
		t.Fatalf("%v, %v", first.Err(), second.Err())
	}
	if !f.e[1].Unlock(first) {
		t.Fatal("no room for the unlock")
	}
	f.Until(1000*millisecond, (*onesided.FlushWait)(second).Met)
	if err := second.TakeError(); err != nil || le.Uint64(f.mem[0]) != 7 {
		t.Error(err)
	}
}

// TestOneWayLossIsNoticedInTime loses all that one rank sends to another: both notice
// within the limit and the time that it takes to ask.
func TestOneWayLossIsNoticedInTime(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a := f.access(0, 1)
	f.dial(1, 0)
	f.Settle()
	f.Filter = func(from, _ int, _ []byte) int { return 1 - from }
	f.e[0].Issue(&onesided.Call{Access: a, Code: wire.CodePut, Origin: word(1)})
	f.e[0].Flush(a)
	in := f.receive(1, 0, 1, 1, 8)
	f.Until(testLimit+2*testLimit/4, func() bool { return (*onesided.FlushWait)(a).Met() && in.Met() })
	if !errors.Is(a.TakeError(), mpierr.ProcFailed) || !errors.Is(in.Err(), mpierr.ProcFailed) {
		t.Errorf("the flush: %v; the receive: %v", a.TakeError(), in.Err())
	}
}

// TestLostBundlesBackOff loses every frame of more than 1300 bytes while small ones pass
// in both directions: each of the long ones is sent again now and then, and no more.
func TestLostBundlesBackOff(t *testing.T) {
	f := newRanks(t, 2, 1<<20, nil)
	a := f.access(0, 1)
	f.Pass(millisecond)
	long := 0
	f.Filter = func(from, _ int, b []byte) int {
		if len(b) > 1300 {
			long++
			return 0
		}
		return 1
	}
	f.e[0].Issue(&onesided.Call{Access: a, Code: wire.CodePut, Origin: make([]byte, 10_000)})
	for range 2000 {
		f.e[0].Issue(&onesided.Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8)})
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
	f := newRanks(t, 2, 1<<20, func(c *Config) { c.Parked = 6 })
	a := f.access(0, 1)
	f.Pass(millisecond)
	rng := rand.New(rand.NewPCG(1, 2))
	f.Filter = func(from, _ int, b []byte) int {
		if from == 0 && rng.IntN(10) == 0 {
			return 0
		}
		return 1
	}
	c := &onesided.Call{Access: a, Code: wire.CodeAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Origin: make([]byte, 400<<10)}
	f.Took(func() bool {
		done, err := f.e[0].Issue(c)
		if err != nil {
			t.Fatal(err)
		}
		f.e[0].Flush(a)
		return done && (*onesided.FlushWait)(a).Met()
	})
}
