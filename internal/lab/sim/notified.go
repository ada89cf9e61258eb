package sim

import (
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/twin"
	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// Notified operations have a window of their own at each rank, in some runs. Each life of an
// origin has a series there: memory, of which each operation has a slot, and counters. Operations
// are not ordered among each other, so a number says how many of the slots are whole.
const (
	notifiedWindow = numWindows + 2
	seriesLen      = 64 << 10
)

// The counters of a series.
const (
	ofWrites = iota // of operations that write to their slot
	ofReads         // of those that read it
	ofAll           // of all that was issued before
	numCounts
)

// notified is what a life has of its own for that.
type notified struct {
	mem      []byte
	window   *windows.Window
	series   []series
	sleepers []*sleeper
	places   map[*life]place // where it issues
}

// series is what is known of the operations that a life of an origin has issued at a target.
type series struct {
	slots   []slot
	ordered bool              // the operations take effect in the order issued
	used    int               // bytes
	issued  [numCounts]uint64 // notifications, that of a call under way too
	sure    [numCounts]uint64 // those that will come, unless a rank fails
	seen    [numCounts]uint64
	before  []before // each notification of all
}

// slot is memory that one operation uses.
type slot struct {
	at, length int
	reads      bool
	notifies   bool
	torn       bool // its call was given up
	over       bool // it has been seen whole; of one that is read: it has been overwritten since
}

// before is what was issued before a notification of all.
type before struct {
	slots         int
	writes, reads uint64
}

// notifies reports whether a run has notified operations. The other runs are what they would be
// without them.
func (w *World) notifies() bool {
	return w.cfg.Program == nil && !w.cfg.Together && rand.New(rand.NewPCG(w.cfg.Seed, 0x407e)).Float64() < 0.25
}

// exposeNotified makes the window of a life, if the plan has it so.
func (l *life) exposeNotified() {
	if !l.w.plan.notifies {
		return
	}
	n := 2 * l.w.plan.ranks
	x := &l.notified
	x.mem, x.series, x.places = make([]byte, n*seriesLen), make([]series, n), map[*life]place{}
	x.window = l.exposeWindow(windows.Config{
		ID: notifiedWindow, Flavor: window.FlavorCreate, Memory: windows.Slice(x.mem), Size: len(x.mem), DispUnit: 1,
		Counters: windows.NewCounters(n * numCounts),
	}, x.mem)
}

// seriesOf returns which series a life has at others.
func seriesOf(l *life) int { return 2*l.rank + int(l.incarnation) - 1 }

// content returns byte i of what slot k of series s holds. No byte is 0.
func content(s, k, i int) byte { return byte(1 + (31*s+13*k+7*i)%255) }

func (x *notified) whole(s, k int) bool {
	slot := &x.series[s].slots[k]
	for i := 0; !slot.over && i < slot.length; i++ {
		if x.mem[slot.at+i] != content(s, k, i) {
			return false
		}
	}
	slot.over = true
	return true
}

// written returns how many of the slots that notified operations write to are whole; in a series
// in order, how many that follow each other from the first on.
func (x *notified) written(s int) (n uint64) {
	y := &x.series[s]
	for k := range y.slots {
		slot := &y.slots[k]
		switch {
		case !slot.notifies || slot.reads:
		case x.whole(s, k):
			n++
		case y.ordered && !slot.torn:
			return n
		}
	}
	return n
}

// checkNotified sees that no counter of l is ahead of what it counts. The owner writes at once to
// slots that it knows to have been read.
func (w *World) checkNotified(l *life) {
	x := &l.notified
	for s := range x.series {
		if y := &x.series[s]; y.issued != y.seen {
			w.checkSeries(l, s)
		}
	}
}

func (w *World) checkSeries(l *life, s int) {
	x := &l.notified
	y := &x.series[s]
	for kind := range numCounts {
		n := x.count(s, kind)
		if n == y.seen[kind] {
			continue
		}
		if n < y.seen[kind] || n > y.issued[kind] {
			w.failf("counter %d of series %d at rank %d: %d after %d, and %d were issued", kind, s, l.rank, n, y.seen[kind], y.issued[kind])
		}
		y.seen[kind] = n
		switch {
		case kind == ofWrites:
			if whole := x.written(s); whole < n {
				w.failf("series %d at rank %d: %d notifications, and %d slots are whole", s, l.rank, n, whole)
			}
		case kind == ofReads && n == y.issued[kind]:
			x.overwrite(s)
		case kind == ofAll:
			b := &y.before[n-1]
			x.mustBeWhole(w, l, s, b.slots, "a notification of all")
			if writes, reads := x.count(s, ofWrites), x.count(s, ofReads); writes < b.writes || reads < b.reads {
				w.failf("series %d at rank %d: notification %d of all before comes after %d and %d others, not %d and %d", s, l.rank, n, writes, reads, b.writes, b.reads)
			}
		}
	}
}

func (x *notified) count(s, kind int) uint64 { return x.window.Counters().Read(numCounts*s + kind) }

func (x *notified) mustBeWhole(w *World, l *life, s, slots int, when string) {
	for k := range slots {
		if slot := &x.series[s].slots[k]; !slot.reads && !slot.torn && !x.whole(s, k) {
			w.failf("series %d at rank %d: slot %d of %d is not whole after %s", s, l.rank, k, slots, when)
		}
	}
}

// overwrite writes to slots that have been read with a notification.
func (x *notified) overwrite(s int) {
	for k := range x.series[s].slots {
		if slot := &x.series[s].slots[k]; slot.reads && slot.notifies && !slot.over {
			slot.over = true
			clear(x.mem[slot.at:][:slot.length])
		}
	}
}

// notifiedAt returns the place of the window of another life.
func (t *task) notifiedAt(to *life) place {
	l := t.l
	if at, ok := l.notified.places[to]; ok {
		return at
	}
	k, there := t.link(to), to.notified.window
	at := place{k: k, order: t.w.chance(0.3)}
	to.notified.series[seriesOf(l)].ordered = at.order
	if to == l {
		at.a = l.e.OpenLocal(there)
	} else {
		at.a = l.access(k.s, notifiedWindow)
	}
	at.a.SetChecked(there.Checker() != nil)
	if l.incarnation == 1 && t.w.maps(l.rank, there) {
		at.memory = there
		if h := there.Host(); to != l {
			at.a.Share(h.Lock, h.IndexOf(l.rank))
		}
	}
	at.sync = l.newEpochs(l.notified.window, 0, there.Checker() != nil,
		func(rank int) bool { return rank == to.rank && (to == l || at.memory != nil) },
		func(epochs.Turn, int) *onesided.Access { return at.a }).Window
	l.notified.places[to] = at
	return at
}

// notifier issues notified operations, in epochs of all kinds and without one.
func (t *task) notifier() {
	w := t.w
	for range w.between(1, 3) {
		if w.chance(0.5) {
			t.doing = "sleep"
			t.sleep(w.span(0, 3*millisecond))
		}
		to := w.nodes[w.rng.IntN(len(w.nodes))]
		at := t.notifiedAt(to)
		sync, start := &epochsOf{Window: at.sync}, w.now
		begin, end := t.epochAt(at)
		t.doing = "begin an epoch for notified operations"
		if begin != nil && t.failed(at.k, t.again(sync, begin), start) {
			continue
		}
		at.sync.Used(to.rank)
		t.doing = "notify"
		results, ok := t.notify(at, to)
		t.doing = "end an epoch of notified operations"
		switch {
		case end == nil:
			ok = ok && t.flush(at.k, at.a)
		default:
			start = w.now
			ok = !t.failed(at.k, t.again(sync, end), start) && ok
		}
		if ok {
			t.allNotified(to, results)
		}
	}
}

// epochAt draws an epoch: what begins it and what ends it, or nil.
func (t *task) epochAt(at place) (begin, end func() epochs.Call) {
	kind, rank := window.LockShared, at.k.to.rank
	switch t.w.rng.IntN(4) {
	case 0:
		return nil, nil
	case 1:
		return func() epochs.Call { return at.sync.LockAll(0) }, at.sync.UnlockAll
	case 2:
		kind = window.LockExclusive
	}
	return func() epochs.Call { return at.sync.Lock(kind, rank, 0) }, func() epochs.Call { return at.sync.Unlock(rank) }
}

// answer is what a call has got, when it has.
type answer struct {
	got, want []byte
	*onesided.Request
}

// notify issues operations, most of which notify, and reports whether all went out.
func (t *task) notify(at place, to *life) (answers []answer, ok bool) {
	w, s := t.w, seriesOf(t.l)
	y := &to.notified.series[s]
	for range w.between(1, 6) {
		kind, c := ofAll, onesided.Call{Code: wire.CodeNotify}
		notifies, k := true, len(y.slots)
		length := w.between(0, []int{0, 8, 16, 200, 3000, 24_000}[w.rng.IntN(6)])
		switch {
		case length == 0 || y.used+length+24 > seriesLen:
			y.before = append(y.before, before{k, y.issued[ofWrites], y.issued[ofReads]})
		default:
			kind, notifies = ofWrites, w.chance(0.8)
			if w.chance(0.3) {
				kind = ofReads
			}
			var got answer
			if c, got = t.inSlot(to, s, length, kind == ofReads); got.got != nil {
				answers = append(answers, got)
			}
			y.slots[k].notifies = notifies
		}
		if notifies {
			c.Notify = onesided.CounterAt(numCounts*s + kind)
			y.issued[kind]++
		}
		p := endless
		if kind == ofWrites {
			p = t.haste()
		}
		became, _ := t.try(p, at, c)
		if became == givenUp { // then it does not count
			y.slots[k].torn = true
			if len(c.Result) > 0 {
				answers = answers[:len(answers)-1]
			}
			if notifies {
				y.issued[kind]--
			}
			if !t.dismiss(at, c.Result) {
				return answers, false
			}
			continue
		}
		if became == failed {
			return answers, false
		}
		clear(c.Origin) // it is the task's again
		if notifies {
			y.sure[kind]++
		}
		w.checkNotified(to)
		switch {
		case w.chance(0.2):
			if !t.flush(at.k, at.a) {
				return answers, false
			}
			t.allNotified(to, answers)
		case w.chance(0.2):
			t.sleep(w.span(0, millisecond))
		}
	}
	return answers, true
}

// inSlot returns a call that writes to a new slot of series s, or reads it, and what it is to get.
func (t *task) inSlot(to *life, s, length int, reads bool) (c onesided.Call, get answer) {
	w, x := t.w, &to.notified
	y := &x.series[s]
	k, disp := len(y.slots), (y.used+15)&^15
	c = onesided.Call{Code: wire.CodePut, Disp: uint64(s*seriesLen + disp)}
	basics := []datatype.Basic{datatype.BasicUint8}
	for _, b := range []datatype.Basic{datatype.BasicUint32, datatype.BasicUint64, datatype.BasicComplex128} {
		if length%b.Size() == 0 {
			basics = append(basics, b)
		}
	}
	basic := basics[w.rng.IntN(len(basics))]
	data, was := make([]byte, length), make([]byte, length)
	for i := range data {
		data[i] = content(s, k, i)
	}
	switch {
	case reads:
		copy(x.mem[c.Disp:], data)
		was, data = data, nil
		if c.Code = wire.CodeGet; w.chance(0.3) {
			c.Code, c.Op, c.Basic = wire.CodeGetAccumulate, datatype.NoOp, basic
		}
	case length == 8 && w.chance(0.3):
		c.Code, c.Basic, c.Compare = wire.CodeCompareSwap, datatype.BasicUint64, make([]byte, 8)
	case w.chance(0.5):
		c.Code, c.Op, c.Basic = wire.CodeAccumulate, datatype.Replace, basic
		if basic != datatype.BasicComplex128 && w.chance(0.5) {
			c.Op = datatype.Sum
		}
		if w.chance(0.3) {
			c.Code = wire.CodeGetAccumulate
		}
	case w.chance(0.3):
		disp += w.rng.IntN(8)
		c.Disp = uint64(s*seriesLen + disp)
	}
	c.Origin = data
	if c.Code.Fetches() {
		get = answer{make([]byte, length), was, &onesided.Request{}}
		c.Result, c.Request = get.got, get.Request
	}
	y.slots = append(y.slots, slot{at: int(c.Disp), length: length, reads: reads})
	y.used = disp + length
	return c, get
}

// allNotified sees, after a flush, that all has acted and counted that this rank has issued.
func (t *task) allNotified(to *life, answers []answer) {
	w, s, x := t.w, seriesOf(t.l), &to.notified
	w.checkNotified(to)
	y := &x.series[s]
	for kind := range numCounts {
		if n := x.count(s, kind); n != y.issued[kind] {
			w.failf("series %d at rank %d: counter %d is %d after a flush, and %d notifications were issued", s, to.rank, kind, n, y.issued[kind])
		}
	}
	x.mustBeWhole(w, to, s, len(y.slots), "a flush")
	k := t.notifiedAt(to).k
	for _, a := range answers {
		if start := w.now; !a.Met() {
			w.failf("rank %d at rank %d: a call has no answer after a flush", t.l.rank, to.rank)
		} else if t.failed(k, a.Err(), start) {
			continue
		}
		t.sameBytes(k, "a notified call got", a.got, a.want)
	}
}

// sleeper is a wait for notifications that whoever counts is to end.
type sleeper struct {
	epochs.NotifiedWait
	told bool // that it has what it waits for
}

// notifiedWaiter waits for notifications, as package rma does, and gives many of the waits up.
func (t *task) notifiedWaiter() {
	w, l := t.w, t.l
	own := epochs.New(epochs.Config{Rank: l.rank, Size: w.plan.ranks, Own: l.notified.window})
	for range w.between(2, 8) {
		t.doing = "sleep"
		t.sleep(w.span(0, 2*millisecond))
		from := w.nodes[w.rng.IntN(len(w.nodes))]
		s := seriesOf(from)
		which := w.rng.Perm(numCounts)[:w.between(1, numCounts)]
		x, y, p := &sleeper{}, &l.notified.series[s], patience{w.now + w.span(0, []int64{200 * microsecond, 5 * millisecond, 100 * millisecond}[w.rng.IntN(3)])}
		n := l.notified.count(s, which[0]) + uint64(w.between(0, 2))
		for i, kind := range which {
			if y.sure[kind] >= n && !w.plan.ranksFail() {
				p = endless
			}
			which[i] = numCounts*s + kind
		}
		x.Name(which)
		x.Begin(own, n, []int{from.rank}, l.e)
		t.doing, _ = x.Awaits()
		met := t.waitNotified(p, x)
		x.End()
		w.checkNotified(l)
		switch {
		case !met:
		case x.Counter >= 0:
			if x.Number < n || l.notified.window.Counters().Read(x.Counter) < x.Number {
				w.failf("rank %d: %s ended at %d of counter %d", l.rank, t.doing, x.Number, x.Counter)
			}
		default:
			fails := func(of *life) bool { _, may := w.mayFail(l, of); return of.rank == from.rank && may }
			if !errors.Is(x.Lost, mpierr.ProcFailed) || !slices.ContainsFunc(w.lives, fails) {
				w.failf("rank %d: %s ended with: %v", l.rank, t.doing, x.Lost)
			}
		}
	}
}

// waitNotified waits for x, asleep or not, and reports whether it is met. p may end it before.
func (t *task) waitNotified(p patience, x *sleeper) (met bool) {
	y := &t.l.notified
	if x.Met() {
		return true
	}
	if t.w.chance(0.3) { // it looks again and again, and is told nothing
		for met = x.Met(); !met && t.w.now < p.until; met = x.Met() {
			t.sleep(t.w.span(10*microsecond, millisecond))
		}
		return met
	}
	x.told = false
	if !t.w.cfg.deaf {
		x.Arm()
	}
	y.sleepers = append(y.sleepers, x)
	met = t.awaitWith(p, x.Met)
	if !t.w.cfg.deaf {
		x.Disarm()
	}
	y.sleepers = slices.DeleteFunc(y.sleepers, func(z *sleeper) bool { return z == x })
	return met
}

// servedNotified looks at what the program of l has made of a frame. Whoever sleeps until it is
// told by a frame that goes to user space.
func (w *World) servedNotified(l *life, v twin.Verdict) {
	w.checkNotified(l)
	for _, x := range l.notified.sleepers {
		if !x.told && x.Changed() {
			w.tell(l, x, v == twin.ToUser)
		}
	}
}

// countedHere looks at an operation that has acted on memory which its rank maps. tells says that
// its rank is going to tell the owner.
func (w *World) countedHere(o *epochs.Operation, tells bool) {
	for _, l := range w.lives {
		for _, x := range l.notified.sleepers {
			i := int(o.Notify.Index())
			if o.Memory.Counters() == x.Counters && slices.Contains(x.Which, i) && x.Counters.Read(i) >= x.AtLeast && !x.told {
				w.tell(l, x, tells)
			}
		}
	}
}

// tell notes that x, who sleeps at l, is told that the wait is over, or finds that nobody does.
func (w *World) tell(l *life, x *sleeper, tells bool) {
	if x.told = tells; !tells {
		what, _ := x.Awaits()
		w.failf("rank %d sleeps, and %s is over", l.rank, what)
	}
}
