package epochs_test

import (
	"context"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/window"
)

const (
	windowID   = 7
	windowSize = 1 << 17 // more than there is room to send
)

// stage is a few ranks with a window, whose frames arrive at once unless the wire is cut. A
// path is the rank that it leads to.
type stage struct {
	t     *testing.T
	cut   bool
	e     []*engine.Engine
	slabs []*engine.Slab
	all   []*window.Table
	w     []*epochs.Window
	mem   [][]byte
}

// newStage returns a stage of ranks that can load and store their own memory alone.
func newStage(t *testing.T, ranks int, change func(*epochs.Config)) *stage {
	s := &stage{t: t}
	for r := range ranks {
		id := uint64(r+1) << 32
		s.all, s.slabs = append(s.all, &window.Table{}), append(s.slabs, engine.HeapSlab(64, 0, 1472))
		s.e = append(s.e, engine.New(engine.Config{
			Rank: r, Size: ranks, Job: 1, Incarnation: 1, Windows: s.all[r], Slab: s.slabs[r],
			Rand: func() uint64 { id++; return id },
		}))
		s.e[r].Now = 1000
	}
	s.w, s.mem = s.windows(windowID, change)
	return s
}

// windows has all ranks make a window.
func (s *stage) windows(id uint32, change func(*epochs.Config)) (w []*epochs.Window, mem [][]byte) {
	for r, ranks := 0, len(s.e); r < ranks; r++ {
		mem = append(mem, make([]byte, windowSize))
		own, err := window.New(window.Config{ID: id, Flavor: window.FlavorCreate, Memory: window.Slice(mem[r]), Size: len(mem[r]), DispUnit: 1, GroupSize: ranks})
		if err != nil {
			s.t.Fatal(err)
		}
		if err := s.all[r].Add(own); err != nil {
			s.t.Fatal(err)
		}
		c := epochs.Config{
			Rank: r, Size: ranks, Own: own, Loads: func(target int) bool { return target == r },
			Open: func(t epochs.Turn, target int) *onesided.Access {
				if target == r {
					return t.OpenLocal(own)
				}
				return s.e[r].OpenAccess(s.e[r].Dial(target, engine.PathID(target), 1), id)
			},
		}
		if change != nil {
			change(&c)
		}
		w = append(w, epochs.New(c))
	}
	return w, mem
}

func (s *stage) turn(rank int) epochs.Turn { return s.e[rank].Operations }

// settle lets all that can happen within some milliseconds happen.
func (s *stage) settle() {
	for range 50 {
		for _, e := range s.e {
			e.Now += 200_000
		}
		for range 20 {
			for from, e := range s.e {
				e.Tick()
				e.Announcements()
				for len(e.Output()) > 0 {
					o := e.Output()[0]
					if !s.cut {
						s.e[o.Path].Receive(s.slabs[from].Payload(o.Slot)[:o.Len], engine.PathID(from))
					}
					e.Took(1)
					e.Reaped([]int32{o.Slot})
				}
			}
		}
	}
}

// step takes a call as far as it comes without waiting any longer.
func (s *stage) step(rank int, c *epochs.Call) epochs.Status {
	status := c.Step(s.turn(rank))
	s.settle()
	for status == epochs.Waits && c.Until().Met() {
		status = c.Step(s.turn(rank))
		s.settle()
	}
	return status
}

// must carries a call out that has nothing to wait for any more.
func (s *stage) must(rank int, c epochs.Call) {
	s.t.Helper()
	if status := s.step(rank, &c); status != epochs.Over || c.Err() != nil {
		s.t.Fatalf("%s at rank %d: status %d, %v", c.Name(), rank, status, c.Err())
	}
}

// giveUp steps a call that has to wait, and gives it up.
func (s *stage) giveUp(rank int, c epochs.Call) epochs.Call {
	s.t.Helper()
	if status := s.step(rank, &c); status != epochs.Waits {
		s.t.Fatalf("%s at rank %d: status %d, %v, where it has to wait", c.Name(), rank, status, c.Err())
	}
	c.GiveUp(s.turn(rank), context.Canceled)
	s.settle()
	return c
}

// issue issues an operation that finds room.
func (s *stage) issue(rank, target int, c onesided.Call) {
	s.t.Helper()
	if err := s.w[rank].MayAccess("call", target, false); err != nil {
		s.t.Fatal(err)
	}
	s.w[rank].Used(target)
	o := epochs.Operation{Call: c, Name: "call", Target: target}
	if status := s.w[rank].Issue(s.turn(rank), &o, nil); status != epochs.Over || o.Err() != nil {
		s.t.Fatal(status, o.Err())
	}
}
