package sim

import (
	"errors"
	"math/bits"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/twin"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// A passing window is one that programs reach, with a counter. Its owner frees it now and
// then, when its program has been interrupted and before user space goes on with the
// request, and makes another. Increments of it travel with those of other windows.
type passing struct {
	id    uint32
	mem   []byte
	count tallied
	last  uint64 // what the counter was when the window was freed
}

// firstPassing is below the ids of passing windows. A multiple of 64, as the distance of
// these, so that programs reach either all or none; see tier.reached.
const firstPassing = 32 * 64

// makePassing gives a life a passing window, the next one if it has had some.
func (l *life) makePassing() {
	tier := &l.w.plan.tier
	if tier.windows == 0 || tier.interrupt == 0 || l.w.cfg.Program != nil || l.w.cfg.Together {
		return
	}
	p := &passing{id: firstPassing + uint32(bits.TrailingZeros64(tier.windows)+64*len(l.passing)), mem: make([]byte, 8)}
	p.count.seen = map[uint64]bool{}
	l.expose(p.id, p.mem, 1)
	l.passing = append(l.passing, p)
}

// freePassing frees the passing window of a rank whose program has just served a request.
func (w *World) freePassing(l *life, why twin.Reason) {
	if why != twin.Interrupted || len(l.passing) == 0 || !l.alive || l.stopped || !w.chance(0.3) {
		return
	}
	p := l.passing[len(l.passing)-1]
	w.tracef("rank %d frees window %d", l.rank, p.id)
	l.e.ForgetWindow(p.id)
	l.windows.Remove(p.id)
	l.xdp.twin.Retract(p.id)
	p.last = le.Uint64(p.mem)
	l.makePassing()
}

// checkPassing compares the counters of passing windows with what was done to them.
func (w *World) checkPassing() {
	for _, l := range w.alive() {
		for i, p := range l.passing {
			v := le.Uint64(p.mem)
			if v < p.count.confirmed || v > p.count.issued {
				w.failf("counter of window %d at rank %d: %d, but %d changes were issued and %d confirmed", p.id, l.rank, v, p.count.issued, p.count.confirmed)
			}
			if i < len(l.passing)-1 && v != p.last {
				w.failf("window %d of rank %d was changed after it was freed", p.id, l.rank)
			}
		}
	}
}

// inPassing adds 1 to the counter of the target's passing window, if it has one, and
// returns what waits for that and sees to the result. The window may be freed meanwhile.
func (t *task) inPassing(k *link) (finish func()) {
	if k.s == nil || len(k.to.passing) == 0 || t.w.chance(0.6) {
		return func() {}
	}
	p := k.to.passing[len(k.to.passing)-1]
	a := t.l.access(k.s, p.id)
	result, start := make([]byte, 8), t.w.now
	var r onesided.Request
	p.count.issued++
	issued := t.issueAt(t.haste(), k.to, t.l.only(a, false), onesided.Call{
		Code: wire.CodeGetAccumulate, Basic: datatype.BasicUint64, Op: datatype.Sum, Origin: one, Result: result, Request: &r,
	})
	return func() {
		if !issued {
			return
		}
		t.l.e.Flush(a)
		t.await(r.Met)
		switch {
		case errors.Is(r.Err(), mpierr.Win):
		case !t.failed(k, r.Err(), start):
			t.counted(&p.count, le.Uint64(result))
		}
	}
}
