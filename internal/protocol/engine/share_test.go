package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// crowd joins rank 0, which all others meet, rank 1, which is well, and n others, which
// a test stops.
func crowd(t *testing.T, n int) *ranks {
	return newRanks(t, 2+n, 1<<20, func(c *Config) {
		if c.Rank == 0 {
			c.Slab = HeapSlab(1024, 0, 1472)
		}
	})
}

// get returns how long a get of 8 bytes by a rank takes.
func (f *ranks) get(from int, a *onesided.Access) int64 {
	f.T.Helper()
	c, issued := &onesided.Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8)}, false
	return f.Took(func() bool {
		if !issued {
			issued, _ = f.e[from].Issue(c)
			f.Settle()
		}
		return issued && (*onesided.LocalWait)(a).Met()
	})
}

var crowds = []int{1, 3, 4, 6, 12, 24, 64}

// TestStoppedOriginsLeaveRoomForAnswers has ranks ask for much and take no answer: a get
// by another takes no longer.
func TestStoppedOriginsLeaveRoomForAnswers(t *testing.T) {
	for _, n := range crowds {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			f := crowd(t, n)
			well := f.access(1, 0)
			f.Pass(10 * millisecond)
			undisturbed := f.get(1, well)
			var stopped []*onesided.Access
			for r := 2; r < 2+n; r++ {
				stopped = append(stopped, f.access(r, 0))
			}
			f.Filter = func(from, to int, _ []byte) int {
				if from == 0 && to >= 2 {
					return 0
				}
				return 1
			}
			for range 20 { // requests go on arriving
				for i, a := range stopped {
					f.e[2+i].Issue(&onesided.Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 1<<20)})
				}
				f.Pass(5 * millisecond)
				if time := f.get(1, well); time > 2*undisturbed {
					t.Fatalf("a get took %d µs, %d undisturbed\n%+v", time/microsecond, undisturbed/microsecond, f.e[0].Usage())
				}
			}
			back := f.access(0, 1)
			if time := f.get(0, back); time > 2*undisturbed {
				t.Errorf("a get by the crowded rank took %d µs", time/microsecond)
			}
		})
	}
}

// TestEachPeerHasAPlaceForItsTurn has ranks take no answer where few bundles can be kept:
// what another one sends is taken in all the same.
func TestEachPeerHasAPlaceForItsTurn(t *testing.T) {
	for _, n := range crowds {
		f := newRanks(t, 2+n, 1<<20, func(c *Config) {
			c.Parked = 3
			if c.Rank == 0 {
				c.Slab = HeapSlab(1024, 0, 1472)
			}
		})
		well := f.access(1, 0)
		for r := 2; r < 2+n; r++ {
			f.access(r, 0)
		}
		f.Filter = func(from, to int, _ []byte) int {
			if from == 0 && to >= 2 {
				return 0
			}
			return 1
		}
		for range 20 {
			for r := 2; r < 2+n; r++ {
				f.e[r].Issue(&onesided.Call{Access: f.access(r, 0), Code: wire.CodeGet, Result: make([]byte, 1<<20)})
			}
			f.Pass(5 * millisecond)
			if f.get(1, well); f.e[1].Stats.Resent > 0 {
				t.Fatalf("%d stopped: a get was not taken in\n%+v", n, f.e[0].Usage())
			}
		}
	}
}

// TestStoppedOriginsWithGapsSlowNobody has ranks leave much at a rank that can never be
// applied, for what comes before it is missing: another's accumulates take no longer.
func TestStoppedOriginsWithGapsSlowNobody(t *testing.T) {
	accumulate := func(n int) int64 {
		f := crowd(t, n)
		well := f.access(1, 0)
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
			a := f.access(r, 0)
			c := &onesided.Call{Access: a, Code: wire.CodeAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Origin: make([]byte, 1<<20)}
			for range 100 {
				f.e[r].Issue(c)
				f.Settle()
			}
			f.Cut[r] = true
		}
		f.Pass(500 * millisecond)
		if time := f.get(1, well); time != 0 {
			t.Errorf("%d stopped: a get took %d µs", n, time/microsecond)
		}
		loss = 0.1
		c := &onesided.Call{Access: well, Code: wire.CodeAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Origin: make([]byte, 400<<10)}
		return f.Took(func() bool {
			done, err := f.e[1].Issue(c)
			if err != nil {
				t.Fatal(err)
			}
			f.e[1].Flush(well)
			return done && (*onesided.FlushWait)(well).Met()
		})
	}
	undisturbed := accumulate(0)
	for _, n := range crowds {
		if time := accumulate(n); time > 2*undisturbed {
			t.Errorf("%d stopped: accumulates took %d µs, %d undisturbed", n, time/microsecond, undisturbed/microsecond)
		}
	}
}

// TestStoppedTargetsLeaveRoomForRequests has a rank ask much of ranks that do not answer:
// its get at another takes no longer.
func TestStoppedTargetsLeaveRoomForRequests(t *testing.T) {
	for _, n := range crowds {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			f := crowd(t, n)
			well := f.access(0, 1)
			var stopped []*onesided.Access
			for r := 2; r < 2+n; r++ {
				stopped = append(stopped, f.access(0, r))
			}
			f.Pass(10 * millisecond)
			undisturbed := f.get(0, well)
			f.Filter = func(from, to int, _ []byte) int {
				if from >= 2 {
					return 0
				}
				return 1
			}
			for _, a := range stopped {
				for range 10_000 {
					f.e[0].Issue(&onesided.Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8)})
				}
				f.e[0].Issue(&onesided.Call{Access: a, Code: wire.CodePut, Origin: make([]byte, 1<<20)})
				f.Settle()
			}
			if !(*onesided.RoomWait)(well).Met() {
				t.Error("no room for a request to another")
			}
			if time := f.get(0, well); time > 2*undisturbed {
				t.Errorf("a get took %d µs, %d undisturbed", time/microsecond, undisturbed/microsecond)
			}
		})
	}
}

// TestOperationsAreSharedAmongTargets leaves gets without an answer at many targets: they
// do not take all there may be.
func TestOperationsAreSharedAmongTargets(t *testing.T) {
	const n = 7
	f := newRanks(t, 2+n, 8, func(c *Config) {
		c.MaxOps = 64
		if c.Rank == 0 {
			c.Slab = HeapSlab(1024, 0, 1472)
		}
	})
	well := f.access(0, 1)
	for r := 2; r < 2+n; r++ {
		a := f.access(0, r)
		f.Cut[r] = true
		for range 100 {
			f.e[0].Issue(&onesided.Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8)})
		}
		if (*onesided.RoomWait)(a).Met() {
			t.Fatalf("rank %d: %d operations of all, and there is room for more", r, f.e[0].Usage().Operations)
		}
	}
	if f.get(0, well) != 0 {
		t.Error("a get at another waits")
	}
}

// TestRoomForAllFramesOfAMessage sends messages of several frames beside any number of
// bundles to a peer that is stopped: a message that is begun has room for all its frames.
func TestRoomForAllFramesOfAMessage(t *testing.T) {
	for n := range 24 {
		f := newRanks(t, 3, 1<<16, func(c *Config) { c.Slab = HeapSlab(32, 0, 1472) })
		stopped := f.access(0, 2)
		f.dial(0, 1)
		f.Pass(10 * millisecond)
		f.Cut[2] = true
		f.e[0].Issue(&onesided.Call{Access: stopped, Code: wire.CodePut, Origin: make([]byte, n*1368)})
		f.Pass(10 * millisecond)
		p := f.send(0, 1, 1, 1, content(n, 8192))
		r := f.receive(1, 0, 1, 1, 8192)
		f.Until(100*millisecond, func() bool { return p.Met() && r.Met() })
	}
}
