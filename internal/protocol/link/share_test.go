package link_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// crowd joins rank 0, which all others meet, rank 1, which is well, and n others, which
// a test stops.
func crowd(t *testing.T, n int) *ranks {
	return newRanks(t, 2+n, func(c *link.Config) {
		if c.Rank == 0 {
			c.Slab = link.HeapSlab(1024, 0, 1472)
		}
	})
}

// roundTrip returns how long the answer to a small request takes.
func (f *ranks) roundTrip(p *peer) int64 {
	f.T.Helper()
	asked := false
	return f.Took(func() bool {
		if !asked {
			asked = p.ask(8)
			f.Settle()
		}
		return asked && p.answered()
	})
}

var crowds = []int{1, 3, 4, 6, 12, 24, 64}

// TestStoppedOriginsLeaveRoomForAnswers has ranks ask for much and take no answer: a request
// by another takes no longer.
func TestStoppedOriginsLeaveRoomForAnswers(t *testing.T) {
	for _, n := range crowds {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			f := crowd(t, n)
			well := f.open(1, 0)
			f.Pass(10 * millisecond)
			undisturbed := f.roundTrip(well)
			var stopped []*peer
			for r := 2; r < 2+n; r++ {
				stopped = append(stopped, f.open(r, 0))
			}
			f.Filter = func(from, to int, _ []byte) int {
				if from == 0 && to >= 2 {
					return 0
				}
				return 1
			}
			for range 20 { // requests go on arriving
				for _, a := range stopped {
					a.ask(1 << 20)
				}
				f.Pass(5 * millisecond)
				if time := f.roundTrip(well); time > 2*undisturbed {
					t.Fatalf("a request took %d µs, %d undisturbed\n%+v", time/microsecond, undisturbed/microsecond, f.e[0].Usage())
				}
			}
			back := f.open(0, 1)
			if time := f.roundTrip(back); time > 2*undisturbed {
				t.Errorf("a request by the crowded rank took %d µs", time/microsecond)
			}
		})
	}
}

// TestEachPeerHasAPlaceForItsTurn has ranks take no answer where few bundles can be kept:
// what another one sends is taken in all the same.
func TestEachPeerHasAPlaceForItsTurn(t *testing.T) {
	for _, n := range crowds {
		f := newRanks(t, 2+n, func(c *link.Config) {
			c.Parked = 3
			if c.Rank == 0 {
				c.Slab = link.HeapSlab(1024, 0, 1472)
			}
		})
		well := f.open(1, 0)
		for r := 2; r < 2+n; r++ {
			f.open(r, 0)
		}
		f.Filter = func(from, to int, _ []byte) int {
			if from == 0 && to >= 2 {
				return 0
			}
			return 1
		}
		for range 20 {
			for r := 2; r < 2+n; r++ {
				f.open(r, 0).ask(1 << 20)
			}
			f.Pass(5 * millisecond)
			if f.roundTrip(well); f.e[1].Stats.Resent > 0 {
				t.Fatalf("%d stopped: a request was not taken in\n%+v", n, f.e[0].Usage())
			}
		}
	}
}

// TestStoppedOriginsWithGapsSlowNobody has ranks leave much at a rank that can never be
// applied, for what comes before it is missing: what another sends takes no longer.
func TestStoppedOriginsWithGapsSlowNobody(t *testing.T) {
	send := func(n int) int64 {
		f := crowd(t, n)
		well := f.open(1, 0)
		rng := rand.New(rand.NewPCG(1, 2))
		loss := 0.0
		gaps := map[int]uint64{}
		f.Filter = func(from, to int, b []byte) int {
			var h wire.Header
			if h.Decode(b); to == 0 && from >= 2 && h.Flags&wire.FlagOrdered != 0 {
				if gaps[from] == 0 {
					gaps[from] = h.Sequence
				}
				if h.Sequence == gaps[from] {
					return 0
				}
			}
			if from+to == 1 && rng.Float64() < loss {
				return 0
			}
			return 1
		}
		for r := 2; r < 2+n; r++ {
			a := f.open(r, 0)
			long := &transfer{1 << 20, wire.FlagOrdered}
			for range 100 {
				a.write(long)
				f.Settle()
			}
			f.Cut[r] = true
		}
		f.Pass(500 * millisecond)
		if time := f.roundTrip(well); time != 0 {
			t.Errorf("%d stopped: a request took %d µs", n, time/microsecond)
		}
		loss = 0.1
		long := &transfer{400 << 10, wire.FlagOrdered}
		return f.Took(func() bool {
			done := well.write(long)
			well.push()
			return done && well.over()
		})
	}
	undisturbed := send(0)
	for _, n := range crowds {
		if time := send(n); time > 2*undisturbed {
			t.Errorf("%d stopped: a transfer took %d µs, %d undisturbed", n, time/microsecond, undisturbed/microsecond)
		}
	}
}

// TestStoppedTargetsLeaveRoomForRequests has a rank ask much of ranks that do not answer:
// its request to another takes no longer.
func TestStoppedTargetsLeaveRoomForRequests(t *testing.T) {
	for _, n := range crowds {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			f := crowd(t, n)
			well := f.open(0, 1)
			var stopped []*peer
			for r := 2; r < 2+n; r++ {
				stopped = append(stopped, f.open(0, r))
			}
			f.Pass(10 * millisecond)
			undisturbed := f.roundTrip(well)
			f.Filter = func(from, to int, _ []byte) int {
				if from >= 2 {
					return 0
				}
				return 1
			}
			for _, a := range stopped {
				for range 10_000 {
					a.ask(8)
				}
				a.write(&transfer{left: 1 << 20})
				f.Settle()
			}
			if !well.SendRoom() {
				t.Error("no room for a request to another")
			}
			if time := f.roundTrip(well); time > 2*undisturbed {
				t.Errorf("a request took %d µs, %d undisturbed", time/microsecond, undisturbed/microsecond)
			}
		})
	}
}
