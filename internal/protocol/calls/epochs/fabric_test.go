package epochs_test

import (
	"context"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/fabric"
	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/window"
)

const (
	windowID   = 7
	windowSize = 1 << 17 // more than there is room to send
)

// stage is a few ranks with a window, which a fabric joins.
type stage struct {
	*fabric.Fabric
	e   []*engine.Engine
	all []*windows.Table
	w   []*epochs.Window
	mem [][]byte
}

// lost is a filter that lets nothing pass.
func lost(int, int, []byte) int { return 0 }

// newStage returns a stage of ranks that can load and store their own memory alone.
func newStage(t *testing.T, ranks int, change func(*epochs.Config)) *stage {
	s := &stage{Fabric: fabric.New(t, ranks)}
	for r := range ranks {
		id, slab := uint64(r+1)<<32, engine.HeapSlab(64, 0, 1472)
		s.all = append(s.all, &windows.Table{})
		s.e = append(s.e, engine.New(engine.Config{
			LinkConfig: engine.LinkConfig{
				Rank: r, Size: ranks, Job: 1, Incarnation: 1, Slab: slab,
				Rand: func() uint64 { id++; return id },
			},
			Windows: s.all[r],
		}))
		s.Start(r, s.e[r].Link, slab)
	}
	s.w, s.mem = s.windows(windowID, change)
	return s
}

// windows has all ranks make a window.
func (s *stage) windows(id uint32, change func(*epochs.Config)) (w []*epochs.Window, mem [][]byte) {
	for r, ranks := 0, len(s.e); r < ranks; r++ {
		mem = append(mem, make([]byte, windowSize))
		own, err := windows.New(windows.Config{ID: id, Flavor: window.FlavorCreate, Memory: windows.Slice(mem[r]), Size: len(mem[r]), DispUnit: 1, GroupSize: ranks})
		if err != nil {
			s.T.Fatal(err)
		}
		if err := s.all[r].Add(own); err != nil {
			s.T.Fatal(err)
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
func (s *stage) settle() { s.Pass(10_000_000) }

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
	s.T.Helper()
	if status := s.step(rank, &c); status != epochs.Over || c.Err() != nil {
		s.T.Fatalf("%s at rank %d: status %d, %v", c.Name(), rank, status, c.Err())
	}
}

// giveUp steps a call that has to wait, and gives it up.
func (s *stage) giveUp(rank int, c epochs.Call) epochs.Call {
	s.T.Helper()
	if status := s.step(rank, &c); status != epochs.Waits {
		s.T.Fatalf("%s at rank %d: status %d, %v, where it has to wait", c.Name(), rank, status, c.Err())
	}
	c.GiveUp(s.turn(rank), context.Canceled)
	s.settle()
	return c
}

// issue issues an operation that finds room.
func (s *stage) issue(rank, target int, c onesided.Call) {
	s.T.Helper()
	if err := s.w[rank].MayAccess("call", target, false); err != nil {
		s.T.Fatal(err)
	}
	s.w[rank].Used(target)
	o := epochs.Operation{Call: c, Name: "call", Target: target}
	if status := s.w[rank].Issue(s.turn(rank), &o, nil); status != epochs.Over || o.Err() != nil {
		s.T.Fatal(status, o.Err())
	}
}
