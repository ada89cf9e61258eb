package sim

import (
	"bytes"
	"errors"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/elements"
	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// A communication call that waits for room is given up now and then. Then any number of its
// parts, from the first on, may have taken effect by the next flush, and nothing writes to
// its result after that.

// haste is the patience of a communication call.
func (t *task) haste() patience {
	if !t.w.chance(0.2) {
		return endless
	}
	return patience{t.w.now + t.w.span(0, []int64{0, 50 * microsecond, 2 * millisecond}[t.w.rng.IntN(3)])}
}

// carryOut carries out a communication call, as package rma does. p may end it.
func (t *task) carryOut(p patience, w *epochs.Window, o *epochs.Operation, y *epochs.Derived) error {
	if t.w.chance(0.3) {
		o.Memory = nil
	}
	status := w.Issue(t.turn(), o, y)
	for range 10_000 {
		switch {
		case status == epochs.Acts:
			t.w.direct++
			awaited := o.Act(y, &t.l.scratch)
			if awaited {
				t.turn().Rouse(o.Access)
			}
			t.w.countedHere(o, awaited)
			return nil
		case status == epochs.Over:
			return o.Err()
		case t.awaitWith(p, o.Until().Met):
			status = w.Issue(t.turn(), o, y)
		default:
			t.w.givenUp++
			t.l.answersLate = t.l.answersLate || o.Code != wire.CodePut && o.Code != wire.CodeAccumulate
			if t.w.cfg.undropped {
				return errPatience
			}
			status = w.GiveUp(t.turn(), o, errPatience)
		}
	}
	t.w.failf("rank %d: there is room, and yet there is none", t.l.rank)
	return nil
}

// only returns the synchronisation of a window of which one target alone is accessed.
func (l *life) only(a *onesided.Access, check bool) *epochs.Window {
	return epochs.New(epochs.Config{
		Rank: l.rank, Size: l.w.plan.ranks, Check: check,
		Open: func(epochs.Turn, int) *onesided.Access { return a },
	})
}

// leftAlone sees that nothing writes to the result of a call that was given up and flushed.
func (t *task) leftAlone(result []byte) {
	if len(result) == 0 {
		return
	}
	was := bytes.Clone(result)
	mine := bytes.Repeat([]byte{freedByte}, len(result))
	copy(result, mine)
	t.sleep(t.w.span(0, 2*millisecond))
	if !bytes.Equal(result, mine) {
		t.w.failf("rank %d, %s: a call that was given up has written to its result after a flush", t.l.rank, t.doing)
	}
	copy(result, was)
}

// outcome is what has become of a call.
type outcome uint8

const (
	issued outcome = iota
	givenUp
	failed // its target has
)

// place is where calls of a task go: to a window of one life.
type place struct {
	k      *link
	sync   *epochs.Window
	a      *onesided.Access
	memory *windows.Window // where the rank maps the window
	order  bool            // all operations there take effect in the order issued
}

// at returns the place of a window of those that tasks work on.
func (k *link) at(win int) place {
	return place{k, k.sync[win].Window, k.a[win], k.direct[win], k.to.w.plan.isOrdered(win)}
}

// isOrdered reports whether all operations on a window keep their order.
func (p *plan) isOrdered(win int) bool { return p.ordered>>win&1 != 0 }

// try issues a call that p may end. A call that travels may have derived datatypes in place
// of what it has; blocks says in which order these come.
func (t *task) try(p patience, at place, c onesided.Call) (became outcome, blocks []block) {
	start := t.w.now
	o := epochs.Operation{Call: c, Name: "call", Target: at.k.to.rank, Memory: at.memory}
	if at.order && !t.w.cfg.unordered {
		o.Order = onesided.OrderAll
	}
	var y *epochs.Derived
	if t.w.chance(0.2) && (at.memory == nil || t.w.chance(0.3)) {
		y, blocks = t.disguise(&o.Call)
	}
	err := t.carryOut(p, at.sync, &o, y)
	if y != nil && t.w.chance(0.5) {
		_ = y.Type.Free() // it is not needed any more, and derived
	}
	switch {
	case errors.Is(err, mpierr.Timeout):
		return givenUp, blocks
	case t.failed(at.k, err, start):
		return failed, blocks
	}
	return issued, blocks
}

// issue sends a call and reports whether it went out.
func (t *task) issue(at place, c onesided.Call) bool {
	became, _ := t.try(endless, at, c)
	return became == issued
}

// insist issues a call that may be made twice, and makes it again where it is given up.
func (t *task) insist(at place, c onesided.Call) bool {
	for {
		if became, _ := t.try(t.haste(), at, c); became != givenUp {
			return became == issued
		}
		if !t.dismiss(at, c.Result) {
			return false
		}
	}
}

// burst issues long calls, more than there is room for, and gives up the one that has to
// wait.
func (t *task) burst(k *link, win int, m *regionModel) {
	w, at := t.w, k.at(win)
	put := false // puts to one place need an order
	for range 60 {
		p := patience{w.now + w.span(0, []int64{0, 100 * microsecond}[w.rng.IntN(2)])}
		c := onesided.Call{Code: wire.CodePut, Disp: t.region(), Origin: t.random(dataSize)}
		was, will := m.data, c.Origin
		if put || w.chance(0.8) {
			c = onesided.Call{Code: wire.CodeAccumulate, Basic: datatype.BasicUint32, Op: datatype.Sum, Disp: t.region() + dataSize, Origin: t.random(combineSize)}
			if w.chance(0.5) {
				c.Code, c.Result = wire.CodeGetAccumulate, make([]byte, combineSize)
			}
			was, will = m.combined, bytes.Clone(m.combined)
			elements.Accumulate(c.Op, c.Basic, will, c.Origin)
		}
		put = put || c.Code == wire.CodePut && !at.order
		switch t.change(p, at, c, was, will) {
		case failed:
			return
		case givenUp:
			t.compare(k, win, m)
			return
		}
	}
	if t.flush(k, at.a) {
		t.compare(k, win, m)
	}
}

// dismiss flushes what is left of a call that was given up.
func (t *task) dismiss(at place, result []byte) bool {
	if !t.flush(at.k, at.a) {
		return false
	}
	t.leftAlone(result)
	return true
}

// change issues a call that changes the memory at a place from what was to what will be,
// element by element in the order of its blocks, and has was follow. p may end the call:
// then it is flushed, and whole elements up to some have changed.
func (t *task) change(p patience, at place, c onesided.Call, was, will []byte) outcome {
	became, blocks := t.try(p, at, c)
	switch became {
	case failed:
		return failed
	case issued:
		copy(was, will)
		return issued
	}
	if !t.dismiss(at, c.Result) {
		return failed
	}
	is := at.k.to.mem[at.a.Window()-1][c.Disp:][:len(was)]
	size := max(1, c.Basic.Size())
	if blocks == nil {
		blocks = []block{{0, len(was)}}
	}
	changes, some := true, false
	for _, b := range blocks {
		for i := b.at; i < b.at+b.length; i += size {
			if changes = changes && bytes.Equal(is[i:i+size], will[i:i+size]); changes {
				some = some || !bytes.Equal(was[i:i+size], will[i:i+size])
				continue
			}
			if !bytes.Equal(is[i:i+size], was[i:i+size]) {
				t.w.failf("rank %d task %d at rank %d: a call was given up, and byte %d of %d is neither as before nor as it would be, or follows one that is as before",
					t.l.rank, t.index, at.k.to.rank, i, len(was))
			}
		}
	}
	if some && !changes {
		t.w.halfWay++
	}
	copy(was, is)
	return givenUp
}
