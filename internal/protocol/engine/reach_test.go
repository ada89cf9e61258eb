package engine

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// TestPayloadGrowsWithTheFirstExchange opens a session over a path that carries all that
// its ends do: without any time passing they use it.
func TestPayloadGrowsWithTheFirstExchange(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a := f.access(0, 1)
	f.Settle()
	if there := f.e[1].Session(0); sessionAt(a).MaxPayload() != 1472 || there.MaxPayload() != 1472 {
		t.Errorf("frames of %d and %d bytes", sessionAt(a).MaxPayload(), there.MaxPayload())
	}
	f.atRest()
}

// TestPathThatCarriesLessIsUsedAtItsSize has a path lose all frames beyond a length from
// the start: nothing takes longer for it, and frames become nearly as long as they may.
func TestPathThatCarriesLessIsUsedAtItsSize(t *testing.T) {
	for _, most := range []int{wire.MinPayload, 1233, 1300, 1400, 1471} {
		f := newRanks(t, 2, 1<<20, nil)
		f.Carries(most)
		a := f.access(0, 1)
		data := content(1, 1<<20)
		start := f.Now
		f.issue(f.e[0], &onesided.Call{Access: a, Code: wire.CodePut, Origin: data})
		if err := f.flush(f.e[0], a); err != nil || !bytes.Equal(f.mem[1], data) {
			t.Errorf("%d bytes: %v", most, err)
		}
		if time := f.Now - start; time > 10*millisecond {
			t.Errorf("%d bytes: a put took %d ms", most, time/millisecond)
		}
		for range 100 {
			f.issue(f.e[0], &onesided.Call{Access: a, Code: wire.CodePut, Origin: data[:8]})
			f.flush(f.e[0], a)
			f.Pass(100 * millisecond)
		}
		if n := sessionAt(a).MaxPayload(); n > most || n < most-64 {
			t.Errorf("%d bytes: frames have %d", most, n)
		}
		f.atRest()
	}
}

// TestPathThatShrinksCostsAMoment has a path stop to carry long frames while many of both
// ranks are on their way: all of them take effect, once, and the session goes on.
func TestPathThatShrinksCostsAMoment(t *testing.T) {
	for _, loss := range []float64{0, 0.1} {
		f := newRanks(t, 2, 1<<20, nil)
		a, b := f.access(0, 1), f.access(1, 0)
		f.Pass(millisecond)
		rng := rand.New(rand.NewPCG(1, 2))
		f.Filter = func(_, _ int, p []byte) int {
			if len(p) > 1300 || rng.Float64() < loss {
				return 0
			}
			return 1 + rng.IntN(2)
		}
		ones := bytes.Repeat(word(1), 10_000)
		result, back := make([]byte, 80_000), make([]byte, 80_000)
		start := f.Now
		sum := func(a *onesided.Access) *onesided.Call {
			return &onesided.Call{Access: a, Code: wire.CodeAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Origin: ones}
		}
		fetch := func(a *onesided.Access, into []byte) *onesided.Call {
			return &onesided.Call{Access: a, Code: wire.CodeGetAccumulate, Op: datatype.NoOp, Basic: datatype.BasicUint64, Result: into}
		}
		calls, done := []*onesided.Call{sum(a), sum(b), sum(a), fetch(a, result), fetch(b, back)}, 0
		f.Until(1000*millisecond, func() bool {
			for done < len(calls) {
				c := calls[done]
				from := 0
				if c.Access == b {
					from = 1
				}
				if ok, err := f.e[from].Issue(c); err != nil {
					t.Fatal(err)
				} else if !ok {
					return false
				}
				done++
			}
			f.e[0].Flush(a)
			f.e[1].Flush(b)
			return (*onesided.FlushWait)(a).Met() && (*onesided.FlushWait)(b).Met()
		})
		t.Logf("loss %.1f: took %d ms", loss, (f.Now-start)/millisecond)
		if a.TakeError() != nil || b.TakeError() != nil {
			t.Fatal(a.TakeError(), b.TakeError())
		}
		if !bytes.Equal(result, bytes.Repeat(word(2), 10_000)) || !bytes.Equal(back, ones) {
			t.Errorf("loss %.1f: not everything took effect once", loss)
		}
		f.Filter = nil
		f.atRest()
	}
}

// TestLongFramesPassAgain has long frames lost by chance until the session doubts that
// they pass: they do, and are used again at once.
func TestLongFramesPassAgain(t *testing.T) {
	f := newRanks(t, 2, 1<<20, nil)
	a := f.access(0, 1)
	f.Pass(millisecond)
	lost, passes := 0, false
	f.Filter = func(_, _ int, b []byte) int {
		passes = passes || sessionAt(a).MaxPayload() < 1300
		if len(b) > 1300 && !passes {
			lost++
			return 0
		}
		return 1
	}
	f.issue(f.e[0], &onesided.Call{Access: a, Code: wire.CodePut, Origin: content(1, 10_000)})
	if err := f.flush(f.e[0], a); err != nil {
		t.Fatal(err)
	}
	if lost < 3 || !passes || sessionAt(a).MaxPayload() != 1472 {
		t.Errorf("%d frames were lost, and they have %d bytes", lost, sessionAt(a).MaxPayload())
	}
	f.atRest()
}

// TestLostProbesTakeNoAcknowledgementsWithThem has a rank answer while its probes are lost:
// whoever it answers sends nothing again.
func TestLostProbesTakeNoAcknowledgementsWithThem(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	f.Carries(1300)
	a := f.access(0, 1)
	for range 30 {
		f.issue(f.e[0], &onesided.Call{Access: a, Code: wire.CodePut, Origin: word(1)})
		if err := f.flush(f.e[0], a); err != nil {
			t.Fatal(err)
		}
		f.Pass(250 * millisecond)
	}
	if n := f.e[0].Stats.Resent; n != 0 {
		t.Errorf("%d bundles were sent again", n)
	}
	f.atRest()
}
