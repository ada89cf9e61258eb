package sim

import (
	"slices"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/elements"
	"github.com/xdprma/xdprma/internal/lab/twin"
	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// A window holds words that all ranks share, and then a region for each task of
// each rank, which no other writes to.
const (
	numShared   = 4
	counterAt   = 0              // fetch-and-add
	slotAt      = 8 * numShared  // taken and given back with compare-and-swap
	tallyAt     = 16 * numShared // added to under a lock, in one bundle
	guardedAt   = 256            // read and written under the exclusive lock:
	guardedSize = 4096           // words that are all equal, in several frames
	regionsAt   = guardedAt + guardedSize
	dataSize    = 6144                   // of a region: put and get
	combineSize = 3072                   // accumulate, after it
	risingAt    = dataSize + combineSize // a word that only rises, after that
	regionSize  = risingAt + 16
)

func windowSize(ranks, tasks int) int { return regionsAt + ranks*tasks*regionSize }

// link is what a rank has to reach another life, shared by its tasks.
type link struct {
	to     *life
	s      *engine.Session // nil to oneself
	a      [numWindows]*onesided.Access
	direct [numWindows]*windows.Window // where the rank maps the target's memory
	sync   [numWindows]*epochsOf       // with that life as the one target
	locked [numWindows]bool            // a task has the lock or asks for it
	sent   map[int]uint64              // messages, by task
}

// link returns the way to a life, and dials where it is new.
func (t *task) link(to *life) *link {
	l := t.l
	k := l.links[to]
	if k != nil {
		return k
	}
	k = &link{to: to, sent: map[int]uint64{}}
	if to != l {
		k.s = l.dial(to)
	}
	for i := range k.a {
		if to == l {
			k.a[i] = l.e.OpenLocal(l.e.Windows().Lookup(uint32(i + 1)))
		} else {
			k.a[i] = l.access(k.s, uint32(i+1))
		}
		k.sync[i] = l.newEpochs(l.views[i], 0, to.views[i].Checker() != nil,
			func(rank int) bool { return to == l || k.direct[i] != nil },
			func(epochs.Turn, int) *onesided.Access { return k.a[i] })
		h := to.views[i].Host()
		k.a[i].SetChecked(to.views[i].Checker() != nil)
		if l.incarnation > 1 || !t.w.maps(l.rank, to.views[i]) {
			continue
		}
		k.direct[i] = to.views[i]
		if to != l {
			k.a[i].Share(h.Lock, h.IndexOf(l.rank))
		}
	}
	l.links[to] = k
	return k
}

func (k *link) failed() bool { return k.s != nil && k.s.Err() != nil }

// spawnWorkload starts a rank's tasks and the one that takes its messages.
func (l *life) spawnWorkload() {
	for i := range l.w.plan.tasks {
		l.spawn(i, false, (*task).workload)
	}
	l.spawn(l.w.plan.tasks, true, (*task).receiver)
	if !l.w.plan.ranksFail() { // the epochs of one life do not match those of another
		l.ringSync = l.ringEpochs()
		l.spawn(l.w.plan.tasks+1, false, (*task).ringOrigin)
		l.spawn(l.w.plan.tasks+2, false, (*task).ringTarget)
	}
	if l.w.plan.notifies {
		l.spawn(l.w.plan.tasks+3, false, (*task).notifier)
		l.spawn(l.w.plan.tasks+4, false, (*task).notifiedWaiter)
	}
}

func (t *task) workload() {
	w := t.w
	mine := map[*link]*[numWindows]*regionModel{}
	for range w.plan.steps {
		if w.chance(0.5) {
			t.doing = "sleep"
			t.sleep(w.span(0, 2*millisecond))
		}
		to := w.nodes[w.rng.IntN(len(w.nodes))]
		k, win := t.link(to), w.rng.IntN(numWindows)
		if mine[k] == nil {
			mine[k] = &[numWindows]*regionModel{}
		}
		m := mine[k]
		if m[win] == nil {
			t.doing = "clear"
			m[win] = newRegionModel()
			if !t.clear(k, win) {
				continue
			}
		}
		if w.chance(0.04) {
			t.doing = "give up"
			t.burst(k, win, m[win])
			continue
		}
		kinds := 9
		if w.plan.isOrdered(win) {
			kinds = 12
		}
		switch w.rng.IntN(kinds) {
		case 0, 1:
			t.doing = "put and get"
			t.putAndGet(k, win, m[win])
		case 2, 3:
			t.doing = "accumulate"
			t.combine(k, win, m[win])
		case 4:
			t.doing = "count"
			t.count(k, win)
		case 5:
			t.doing = "take a slot"
			t.takeSlot(k, win)
		case 6:
			t.doing = "lock"
			for range w.between(1, 4) {
				if w.chance(0.6) { // one lock is in demand
					k, win = t.link(w.nodes[0]), w.plan.ranks%numWindows
				}
				t.guarded(k, win)
			}
		case 7:
			t.doing = "lock all"
			t.lockAll(win)
		case 8:
			t.doing = "send"
			t.send(k)
		default:
			t.doing = "keep the order"
			t.keepOrder(k, win, m[win])
		}
	}
}

// failed is failedAt of a link.
func (t *task) failed(k *link, err error, since int64) bool { return t.failedAt(k.to, err, since) }

// flush reports whether everything issued has been applied.
func (t *task) flush(k *link, a *onesided.Access) bool {
	start := t.w.now
	t.l.e.Flush(a)
	t.awaitAt(a, endless, (*onesided.FlushWait)(a).Met)
	return !t.failed(k, a.TakeError(), start)
}

// lock begins the epoch of a lock once no other task of the rank has one, and reports
// whether it did.
func (t *task) lock(k *link, win int, exclusive bool) bool {
	kind, s := window.LockShared, k.sync[win]
	if exclusive {
		kind = window.LockExclusive
	}
	t.await(func() bool { return !k.locked[win] })
	k.locked[win] = true
	start := t.w.now
	err := t.again(s, func() epochs.Call { return s.Window.Lock(kind, k.to.rank, 0) })
	if t.failed(k, err, start) {
		k.locked[win] = false
		return false
	}
	return true
}

// unlock gives the lock back, and reports whether all done under it counts.
func (t *task) unlock(k *link, win int) bool {
	s, start := k.sync[win], t.w.now
	err := t.again(s, func() epochs.Call { return s.Window.Unlock(k.to.rank) })
	k.locked[win] = false
	return !t.failed(k, err, start)
}

func (t *task) region() uint64 {
	return regionsAt + uint64(t.l.rank*t.w.plan.tasks+t.index)*regionSize
}

func (t *task) random(n int) []byte {
	b := make([]byte, (n+7)&^7)
	for i := 0; i < len(b); i += 8 {
		le.PutUint64(b[i:], t.w.rng.Uint64())
	}
	return b[:n]
}

// put puts data all of which is to arrive, and then spoils the origin's copy, which it may.
func (t *task) put(k *link, win int, disp uint64, data []byte) bool {
	origin := append([]byte(nil), data...)
	ok := t.insist(k.at(win), onesided.Call{Code: wire.CodePut, Disp: disp, Origin: origin})
	for i := range origin {
		origin[i] ^= 0xff
	}
	return ok
}

func (t *task) clear(k *link, win int) bool {
	return t.put(k, win, t.region(), make([]byte, dataSize+combineSize)) && t.flush(k, k.a[win])
}

func (t *task) putAndGet(k *link, win int, m *regionModel) {
	w := t.w
	for range w.between(1, 3) {
		limit := []int{16, 200, 3000, dataSize}[w.rng.IntN(4)]
		for at := 0; at < dataSize; {
			n := min(w.between(1, limit), dataSize-at)
			if w.chance(0.5) || limit == dataSize {
				data := t.random(n)
				origin := slices.Clone(data)
				c := onesided.Call{Code: wire.CodePut, Disp: t.region() + uint64(at), Origin: origin}
				if t.change(t.haste(), k.at(win), c, m.data[at:at+n], data) == failed {
					return
				}
				clear(origin) // it is the task's again
			}
			at += n + w.rng.IntN(limit)
			if limit == 16 && w.chance(0.02) {
				break
			}
		}
		if !t.flush(k, k.a[win]) {
			return
		}
		t.compare(k, win, m)
	}
	t.get(k, win, m)
}

// get issues several gets and then waits for them: their answers may need more
// slots than the target has.
func (t *task) get(k *link, win int, m *regionModel) {
	w := t.w
	type part struct {
		at     int
		result []byte
		onesided.Request
	}
	start := w.now
	parts := make([]part, w.between(1, 5))
	for i := range parts {
		p := &parts[i]
		p.at = w.rng.IntN(dataSize)
		p.result = make([]byte, w.between(1, dataSize-p.at))
		c := onesided.Call{Code: wire.CodeGet, Disp: t.region() + uint64(p.at), Result: p.result, Request: &p.Request}
		became, _ := t.try(t.haste(), k.at(win), c)
		if became == failed || became == givenUp && !t.dismiss(k.at(win), p.result) {
			return
		}
		if became == givenUp {
			parts = parts[:i]
			break
		}
	}
	for i := range parts {
		p := &parts[i]
		t.await(p.Met)
		if t.failed(k, p.Err(), start) || k.failed() {
			return
		}
		t.sameBytes(k, "got", p.result, m.data[p.at:p.at+len(p.result)])
	}
}

// The datatypes and operators of combine: those that the XDP program executes, and all others but
// pairs and what is for pairs alone.
var (
	combined = twin.Codes(func(b datatype.Basic) bool {
		return wire.TierSize(b) > 0 || b.Valid() && !b.Pair()
	})
	combining = twin.Codes(func(o datatype.Op) bool {
		return wire.TierElements(o, 8) > 0 || o.Valid() && o != datatype.MinLoc && o != datatype.MaxLoc
	})
)

// combine issues accumulates of all kinds to one place without a flush between
// them: they take effect in the order issued.
func (t *task) combine(k *link, win int, m *regionModel) {
	w := t.w
	var results []fetched
	for range w.between(1, 6) {
		b, op := combined[w.rng.IntN(len(combined))], combining[w.rng.IntN(len(combining))]
		if op.Check(b) != mpierr.Success {
			continue
		}
		n := w.between(1, []int{1, 20, combineSize / b.Size()}[w.rng.IntN(3)]) * b.Size()
		at := w.rng.IntN((combineSize-n)/b.Size()+1) * b.Size()
		mem := m.combined[at : at+n]
		c := onesided.Call{
			Code: wire.CodeAccumulate, Basic: b, Op: op,
			Disp: t.region() + dataSize + uint64(at), Origin: t.random(n),
		}
		if op == datatype.NoOp || w.chance(0.4) {
			c.Code, c.Result = wire.CodeGetAccumulate, make([]byte, n)
		}
		was, will := slices.Clone(mem), slices.Clone(mem)
		if op != datatype.NoOp {
			elements.Accumulate(op, b, will, c.Origin)
		}
		became := t.change(t.haste(), k.at(win), c, mem, will)
		if became == failed || !t.rise(k, win, m) {
			return
		}
		if became == issued && c.Result != nil {
			results = append(results, fetched{c.Result, was})
		}
	}
	t.completed(k, win, m, results, "fetched")
}

// fetched is what a call has got, and what it must be.
type fetched struct{ got, want []byte }

// completed flushes what was issued, and compares the memory and what was fetched with what they must be.
func (t *task) completed(k *link, win int, m *regionModel, results []fetched, what string) {
	if !t.flush(k, k.a[win]) {
		return
	}
	t.compare(k, win, m)
	for _, r := range results {
		t.sameBytes(k, what, r.got, r.want)
	}
}

// rise replaces the region's last word by a larger value.
func (t *task) rise(k *link, win int, m *regionModel) bool {
	m.risen++
	v := le.AppendUint64(nil, t.l.incarnation<<32|m.risen)
	return t.issue(k.at(win), onesided.Call{
		Code: wire.CodeAccumulate, Basic: datatype.BasicUint64, Op: datatype.Replace,
		Disp: t.region() + risingAt, Origin: v,
	})
}

// count adds 1 to a counter and sees what was there before.
func (t *task) count(k *link, win int) {
	w, i := t.w, t.w.rng.IntN(numShared)
	c := &k.to.model.counters[win][i]
	for range w.between(1, 8) {
		var r onesided.Request
		result, start := make([]byte, 8), w.now
		before := t.inPassing(k)
		c.issued++
		order := onesided.OrderAccumulates
		if w.chance(0.5) {
			order = onesided.OrderNone
		}
		became, _ := t.try(t.haste(), k.at(win), onesided.Call{
			Code: wire.CodeGetAccumulate, Basic: datatype.BasicUint64, Op: datatype.Sum, Order: order,
			Disp: counterAt + uint64(i)*8, Origin: one, Result: result, Request: &r,
		})
		if became == failed || became == givenUp && !t.dismiss(k.at(win), result) {
			return
		}
		after := t.inPassing(k)
		if w.chance(0.5) {
			t.l.e.Flush(k.a[win])
		}
		before()
		after()
		if became == givenUp {
			continue // it counts or not
		}
		t.await(r.Met)
		if t.failed(k, r.Err(), start) || k.failed() {
			return
		}
		t.counted(c, le.Uint64(result))
	}
}

func (t *task) takeSlot(k *link, win int) {
	w, i := t.w, t.w.rng.IntN(numShared)
	disp := slotAt + uint64(i)*8
	me := le.AppendUint64(nil, t.l.incarnation<<32|uint64(t.l.rank*w.plan.tasks+t.index+1))
	result := make([]byte, 8)
	for range w.between(1, 4) {
		if !t.issue(k.at(win), onesided.Call{
			Code: wire.CodeCompareSwap, Basic: datatype.BasicUint64, Disp: disp,
			Compare: make([]byte, 8), Origin: me, Result: result,
		}) || !t.flush(k, k.a[win]) {
			return
		}
		if le.Uint64(result) != 0 {
			t.sleep(w.span(0, 300*microsecond))
			continue
		}
		t.takenSlot(k, win, i)
		t.sleep(w.span(0, 300*microsecond))
		k.to.model.slots[win][i] = nil
		if t.issue(k.at(win), onesided.Call{
			Code: wire.CodeAccumulate, Basic: datatype.BasicUint64, Op: datatype.Replace, Disp: disp, Origin: make([]byte, 8),
		}) {
			t.flush(k, k.a[win])
		}
		return
	}
}

// guarded changes words under the exclusive lock.
func (t *task) guarded(k *link, win int) {
	w, a := t.w, k.a[win]
	g := &k.to.model.guarded[win]
	if w.chance(0.5) {
		t.tally(k, win)
		return
	}
	if !t.lock(k, win, true) {
		return
	}
	start, block := w.now, make([]byte, guardedSize)
	if !t.insist(k.at(win), onesided.Call{Code: wire.CodeGet, Disp: guardedAt, Result: block}) {
		t.unlock(k, win)
		return
	}
	t.l.e.FlushLocal(a)
	t.awaitAt(a, endless, func() bool { return (*onesided.LockWait)(a).Met() && (*onesided.LocalWait)(a).Met() })
	if k.failed() && t.failed(k, k.s.Err(), start) {
		t.unlock(k, win)
		return
	}
	t.acquired(k, win, true)
	t.allEqual(k, block)
	if w.chance(0.5) {
		t.sleep(w.span(0, 200*microsecond))
	}
	g.issued++
	next := le.Uint64(block) + 1
	for i := 0; i < len(block); i += 8 {
		le.PutUint64(block[i:], next)
	}
	t.put(k, win, guardedAt, block)
	t.released(k, win)
	if t.unlock(k, win) {
		g.confirmed++
	}
}

// tally adds under a lock without waiting for anything before the unlock.
func (t *task) tally(k *link, win int) {
	n := &k.to.model.tally[win]
	if !t.lock(k, win, t.w.chance(0.5)) {
		return
	}
	n.issued++
	became, _ := t.try(t.haste(), k.at(win), onesided.Call{Code: wire.CodeAccumulate, Basic: datatype.BasicUint64, Op: datatype.Sum, Disp: tallyAt, Origin: one})
	if t.unlock(k, win) && became == issued {
		n.confirmed++
	}
}

// lockAll takes the shared lock of every rank, works, and gives them back.
func (t *task) lockAll(win int) {
	var held []*link
	for _, to := range t.w.nodes {
		k := t.link(to)
		if !t.lock(k, win, false) {
			continue
		}
		start := t.w.now
		t.l.e.Flush(k.a[win])
		t.awaitAt(k.a[win], endless, (*onesided.LockWait)(k.a[win]).Met)
		if k.failed() && t.failed(k, k.s.Err(), start) {
			t.unlock(k, win)
			continue
		}
		t.acquired(k, win, false)
		held = append(held, k)
	}
	for _, k := range held {
		t.count(k, win)
	}
	for _, k := range held {
		t.released(k, win)
		t.unlock(k, win)
	}
}
