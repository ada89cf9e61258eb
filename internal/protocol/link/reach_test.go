package link_test

import (
	"math/rand/v2"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// TestPayloadGrowsWithTheFirstLongBundle opens a session over a path that carries all that
// its ends do. Both use it once one has something to send that is not short, without any time passing.
func TestPayloadGrowsWithTheFirstLongBundle(t *testing.T) {
	f := newRanks(t, 2, nil)
	a := f.open(0, 1)
	there := f.at(1, 0)
	for range 10 {
		f.transfer(a, 0, 500)
	}
	if a.MaxPayload() != wire.MinPayload || there.MaxPayload() != wire.MinPayload {
		t.Errorf("short bundles had the lengths %d and %d found out", a.MaxPayload(), there.MaxPayload())
	}
	now := f.Now
	f.send(a, 700, 0)
	a.push()
	f.Settle()
	if a.MaxPayload() != 1472 || there.MaxPayload() != 1472 || f.Now != now {
		t.Errorf("frames of %d and %d bytes with a longer bundle, after %d ms", a.MaxPayload(), there.MaxPayload(), (f.Now-now)/millisecond)
	}
	f.AtRest()
}

// TestPathThatCarriesLessIsUsedAtItsSize has a path lose all frames beyond a length from
// the start: nothing takes longer for it, and frames become nearly as long as they may.
func TestPathThatCarriesLessIsUsedAtItsSize(t *testing.T) {
	for _, most := range []int{wire.MinPayload, 1233, 1300, 1400, 1471} {
		f := newRanks(t, 2, nil)
		f.Carries(most)
		a := f.open(0, 1)
		start := f.Now
		f.transfer(a, 0, 1<<20)
		if time := f.Now - start; time > 10*millisecond {
			t.Errorf("%d bytes: a transfer took %d ms", most, time/millisecond)
		}
		for range 100 {
			f.send(a, 8, 0)
			f.flush(a)
			f.Pass(100 * millisecond)
		}
		if n := a.MaxPayload(); n > most || n < most-64 {
			t.Errorf("%d bytes: frames have %d", most, n)
		}
		f.AtRest()
	}
}

// TestPathThatShrinksCostsAMoment has a path stop to carry long frames while many of both
// ranks are on their way: all of them take effect, once, and the session goes on.
func TestPathThatShrinksCostsAMoment(t *testing.T) {
	for _, loss := range []float64{0, 0.1} {
		f := newRanks(t, 2, nil)
		a, b := f.open(0, 1), f.open(1, 0)
		f.Pass(millisecond)
		rng := rand.New(rand.NewPCG(1, 2))
		f.Filter = func(_, _ int, p []byte) int {
			if len(p) > 1300 || rng.Float64() < loss {
				return 0
			}
			return 1 + rng.IntN(2)
		}
		start := f.Now
		long := []*transfer{{80_000, wire.FlagOrdered}, {80_000, wire.FlagOrdered}}
		again := &transfer{80_000, wire.FlagOrdered}
		asked := 0
		f.Until(1000*millisecond, func() bool {
			if !a.write(long[0]) || !b.write(long[1]) || !a.write(again) {
				return false
			}
			for ; asked < 2; asked++ {
				if p := []*peer{a, b}[asked]; !p.ask(80_000) {
					return false
				}
			}
			a.push()
			b.push()
			return a.over() && b.over()
		})
		t.Logf("loss %.1f: took %d ms", loss, (f.Now-start)/millisecond)
		if a.Err() != nil || b.Err() != nil {
			t.Fatal(a.Err(), b.Err())
		}
		f.once(a, 0)
		f.once(b, 1)
		f.Filter = nil
		f.AtRest()
	}
}

// TestLongFramesPassAgain has long frames lost by chance until the session doubts that
// they pass: they do, and are used again at once.
func TestLongFramesPassAgain(t *testing.T) {
	f := newRanks(t, 2, nil)
	a := f.open(0, 1)
	f.transfer(a, 0, 1000)
	lost, passes := 0, false
	f.Filter = func(_, _ int, b []byte) int {
		passes = passes || a.MaxPayload() < 1300
		if len(b) > 1300 && !passes {
			lost++
			return 0
		}
		return 1
	}
	f.send(a, 10_000, 0)
	if err := f.flush(a); err != nil {
		t.Fatal(err)
	}
	if lost < 3 || !passes || a.MaxPayload() != 1472 {
		t.Errorf("%d frames were lost, and they have %d bytes", lost, a.MaxPayload())
	}
	f.AtRest()
}

// TestLostProbesTakeNoAcknowledgementsWithThem has a rank answer while its probes are lost:
// whoever it answers sends nothing again.
func TestLostProbesTakeNoAcknowledgementsWithThem(t *testing.T) {
	f := newRanks(t, 2, nil)
	f.Carries(1300)
	a := f.open(0, 1)
	for range 30 {
		f.send(a, 700, 0)
		if err := f.flush(a); err != nil {
			t.Fatal(err)
		}
		f.Pass(250 * millisecond)
	}
	if n := f.e[0].Stats.Resent; n != 0 {
		t.Errorf("%d bundles were sent again", n)
	}
	f.AtRest()
}
