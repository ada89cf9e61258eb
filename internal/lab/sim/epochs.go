package sim

import (
	"errors"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// epochsOf is a window as a task synchronises on it.
type epochsOf struct {
	*epochs.Window
	inner, ending collective.Comm // of the window's ranks, for fence and for free
}

// newEpochs returns the synchronisation of a window. The contexts are those of its barriers.
func (l *life) newEpochs(own *windows.Window, contexts uint32, check bool, loads func(int) bool, open func(epochs.Turn, int) *onesided.Access) *epochsOf {
	ranks := l.w.plan.ranks
	return &epochsOf{
		Window: epochs.New(epochs.Config{Rank: l.rank, Size: ranks, Own: own, Check: check, Loads: loads, Open: open}),
		inner:  collective.New(contexts, nil, l.rank, ranks), ending: collective.New(contexts+1, nil, l.rank, ranks),
	}
}

// turn is the rank's engine at this time.
func (t *task) turn() epochs.Turn { return t.l.e.Operations }

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
		case status == epochs.Gathers:
			in := &w.inner
			if c.Ends() {
				in = &w.ending
			}
			barrier := in.Barrier(c.Name())
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
// memory afterwards. In every third run the windows are freed with operations outstanding,
// and the frees themselves are given up.
func (m *machine) free() {
	t := m.t
	if t.w.leavesBehind() {
		for i := range m.windows {
			m.leaveBehind(i)
		}
	}
	for i, w := range m.windows {
		p := endless
		if t.w.leavesBehind() {
			p = t.shortly()
		}
		t.doing = "free"
		err := t.synchronise(p, w.epochsOf, w.Window.Free())
		broken := errors.Is(err, mpierr.Timeout) || errors.Is(err, mpierr.ProcFailed) || errors.Is(err, mpierr.Win)
		if err != nil && (!broken || !t.w.leavesBehind()) {
			t.w.failf("rank %d frees window %d: %v", t.l.rank, i, err)
		}
		m.end(i)
	}
}

// leavesBehind reports whether windows of the run are freed with operations outstanding.
func (w *World) leavesBehind() bool { return w.cfg.Program != nil && w.cfg.Seed%3 == 0 }

// shortly is a patience that ends soon.
func (t *task) shortly() patience {
	return patience{t.w.now + t.w.span(0, []int64{0, 100 * microsecond, 5 * millisecond}[t.w.rng.IntN(3)])}
}

// leaveBehind fetches from the next rank's window into one of this rank, in an epoch whose
// end is given up. Calls that find no room are given up half-way.
func (m *machine) leaveBehind(i int) {
	t, l, w := m.t, m.t.l, m.windows[i]
	t.doing = "leave operations behind"
	ranks := t.w.plan.ranks
	next, before := (l.rank+1)%ranks, (l.rank+ranks-1)%ranks
	check := func(err error) {
		if err != nil && !errors.Is(err, mpierr.Timeout) && !errors.Is(err, mpierr.Win) {
			t.w.failf("rank %d, window %d: %v", l.rank, i, err)
		}
	}
	check(w.Window.Post(t.turn(), []int{before}, 0))
	check(w.Window.Start(t.turn(), []int{next}, 0))
	a := w.Opened(next)
	into := l.generated[t.w.rng.IntN(len(m.windows))] // which may be freed before window i
	if n := min(len(into), t.w.cfg.Program.Windows[i].Sizes[next]); n > 0 {
		c := onesided.Call{Code: wire.CodeGet, Disp: w.targets[next].base, Result: into[:n]}
		times := 1
		if t.w.chance(0.2) { // changes nothing, and takes all the room that there is
			c.Code, c.Basic, c.Op, c.Origin = wire.CodeGetAccumulate, datatype.BasicUint8, datatype.BOr, make([]byte, n)
			t.awaitWith(t.shortly(), func() bool { return !a.Starting() })
			times = 30
		}
		for err := error(nil); times > 0 && err == nil; times-- {
			err = t.carryOut(t.shortly(), w.Window, &epochs.Operation{Call: c, Name: "call", Target: next}, nil)
			check(err)
		}
	}
	check(t.synchronise(t.shortly(), w.epochsOf, w.Window.Complete()))
	check(t.again(w.epochsOf, w.Window.Wait))
	// Free drops what the target has not posted for, and there it would be missed.
	t.await(func() bool { return !a.Starting() && (*onesided.ReleaseWait)(a).Met() })
}

// end is the end of a window whose synchronisation is over.
func (m *machine) end(i int) {
	w, l := m.windows[i], m.t.l
	w.Close(l.e.Operations)
	l.e.Evict(l.generated[i])
	l.windows.Remove(uint32(i + 1))
	if l.xdp.twin != nil {
		l.xdp.twin.Retract(uint32(i + 1))
	}
	for _, c := range []*collective.Comm{&w.inner, &w.ending} {
		l.e.FreeContext(c.Context)
	}
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
