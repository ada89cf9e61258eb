package sim

import (
	"errors"

	"github.com/xdprma/xdprma/internal/collective"
	"github.com/xdprma/xdprma/internal/engine"
	"github.com/xdprma/xdprma/internal/epochs"
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/window"
)

// epochsOf is a window as a task synchronises on it.
type epochsOf struct {
	*epochs.Window
	inner, ending collective.Comm // of the window's ranks, for fence and for free
}

// newEpochs returns the synchronisation of a window. The contexts are those of its barriers.
func (l *life) newEpochs(own *window.Window, contexts uint32, check bool, loads func(int) bool, open func(epochs.Turn, int) *engine.Access) *epochsOf {
	ranks := l.w.plan.ranks
	return &epochsOf{
		Window: epochs.New(epochs.Config{Rank: l.rank, Size: ranks, Own: own, Check: check, Loads: loads, Open: open}),
		inner:  collective.New(contexts, nil, l.rank, ranks), ending: collective.New(contexts+1, nil, l.rank, ranks),
	}
}

// turn is the rank's engine at this time.
func (t *task) turn() epochs.Turn { return epochs.Turn{Engine: t.l.e, Now: t.w.now} }

// impatience is the patience of a call that is made again when it is given up, which
// happens now and then.
func (t *task) impatience() patience {
	if !t.w.chance(0.1) {
		return endless
	}
	return patience{t.w.now + t.w.span(0, []int64{20 * microsecond, millisecond, 100 * millisecond}[t.w.rng.IntN(3)])}
}

// again makes a synchronisation call until it is not given up.
func (t *task) again(w *epochsOf, begin func() epochs.Call) error {
	for {
		if err := t.synchronise(t.impatience(), w, begin()); !errors.Is(err, mpierr.Timeout) {
			return err
		}
	}
}

// synchronise carries out a synchronisation call, as package rma does. p may end it.
func (t *task) synchronise(p patience, w *epochsOf, c epochs.Call) error {
	status := c.Step(t.turn())
	for status != epochs.Over {
		switch {
		case status == epochs.Meets:
			in := &w.inner
			if c.Ends() {
				in = &w.ending
			}
			barrier := in.Barrier()
			t.carry(p, barrier)
			status = c.Met(t.turn(), barrier.Err())
		case t.awaitWith(p, c.Until().Met):
			status = c.Step(t.turn())
		default:
			status = c.GiveUp(t.turn(), errPatience)
		}
	}
	return c.Err()
}

// freedByte is what fills the memory of windows that have been freed.
const freedByte = 0xf2

// free frees the windows of a program, and looks whether anything is written to their
// memory afterwards.
func (m *machine) free() {
	m.t.doing = "free"
	for i, w := range m.windows {
		if err := m.t.synchronise(endless, w.epochsOf, w.Window.Free()); err != nil {
			m.t.w.failf("rank %d frees window %d: %v", m.t.l.rank, i, err)
		}
		m.end(i)
	}
}

// end is the end of a window whose synchronisation is over.
func (m *machine) end(i int) {
	t, w, l := m.t.turn(), m.windows[i], m.t.l
	w.Close(t)
	t.Evict(t.Now, l.generated[i])
	l.windows.Remove(uint32(i + 1))
	for at := range l.generated[i] {
		l.generated[i][at] = freedByte
	}
	l.freed[i] = true
}

// checkFreed sees that nothing was written to memory of windows that were freed.
func (w *World) checkFreed() {
	for _, l := range w.nodes {
		for i, mem := range l.generated {
			for at, b := range mem {
				if l.freed[i] && b != freedByte {
					w.failf("rank %d: byte %d of window %d, which it has freed, was written to", l.rank, at, i)
				}
			}
		}
	}
}
