package sim

import (
	"bytes"
	"math/rand/v2"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// The ring is a window of its own at each rank, which the rank before it works on
// with post and start. The origin runs ahead of the posts by as many epochs as it
// does not wait for results of, so that the target must find exactly the epoch
// that it has posted for.
const (
	ringWindow = numWindows + 1
	ringSize   = 5000 // bytes that an epoch puts; a counter of epochs follows
	ringLength = ringSize + 8
)

// ringBlock is what an epoch of a rank puts.
func ringBlock(rank, epoch int) []byte {
	b := make([]byte, ringSize)
	r := rand.New(rand.NewPCG(uint64(rank), uint64(epoch)))
	for i := 0; i < len(b); i += 8 {
		le.PutUint64(b[i:], r.Uint64())
	}
	return b
}

// ringEpochs returns the synchronisation of the ring window.
func (l *life) ringEpochs() *epochsOf {
	own := l.e.Windows().Lookup(ringWindow)
	return l.newEpochs(own, 0, own.Checker() != nil, func(rank int) bool { return rank == l.rank }, func(t epochs.Turn, rank int) *onesided.Access {
		if rank == l.rank {
			return t.OpenLocal(own)
		}
		return l.access(l.dial(l.w.nodes[rank]), ringWindow)
	})
}

func (t *task) ringOrigin() {
	w, s := t.w, t.l.ringSync
	next := (t.l.rank + 1) % w.plan.ranks
	k := t.link(w.nodes[next])
	for epoch := 1; epoch <= w.plan.steps; epoch++ {
		t.doing = "start"
		if t.failed(k, s.Window.Start(t.turn(), []int{next}, 0), w.now) {
			return
		}
		at := place{k: k, sync: s.Window, a: s.Opened(next)}
		block := ringBlock(t.l.rank, epoch)
		cut := 8 * w.rng.IntN(ringSize/8)
		count, result := bytes.Clone(one), []byte(nil)
		ok := t.insist(at, onesided.Call{Code: wire.CodePut, Origin: block[:cut]}) &&
			t.insist(at, onesided.Call{Code: wire.CodePut, Disp: uint64(cut), Origin: block[cut:]}) &&
			t.issue(at, onesided.Call{Code: wire.CodeAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Disp: ringSize, Origin: count})
		if ok && w.chance(0.4) {
			result = make([]byte, 8)
			ok = t.issue(at, onesided.Call{Code: wire.CodeGetAccumulate, Op: datatype.NoOp, Basic: datatype.BasicUint64, Disp: ringSize, Result: result})
		}
		clear(block) // it is the program's again
		t.doing = "complete"
		start := w.now
		if t.failed(k, t.again(s, s.Window.Complete), start) || !ok {
			return
		}
		if result != nil && le.Uint64(result) != uint64(epoch) {
			w.failf("rank %d: in epoch %d the counter at rank %d was %d", t.l.rank, epoch, next, le.Uint64(result))
		}
		if w.chance(0.5) {
			t.sleep(w.span(0, 3*millisecond))
		}
	}
}

func (t *task) ringTarget() {
	w, s := t.w, t.l.ringSync
	before := (t.l.rank + w.plan.ranks - 1) % w.plan.ranks
	k := t.link(w.nodes[before])
	want := make([]byte, ringSize)
	for epoch := 1; epoch <= w.plan.steps; epoch++ {
		if w.chance(0.5) {
			t.doing = "sleep"
			t.sleep(w.span(0, 3*millisecond))
		}
		t.doing = "post"
		t.ringHolds(k, "before a post", want, epoch-1)
		if t.failed(k, s.Window.Post(t.turn(), []int{before}, 0), w.now) {
			return
		}
		t.doing = "wait"
		start := w.now
		if t.failed(k, t.again(s, s.Window.Wait), start) {
			return
		}
		want = ringBlock(before, epoch)
		t.ringHolds(k, "after a wait", want, epoch)
	}
}

// ringHolds compares this rank's window with what an epoch must have left.
func (t *task) ringHolds(k *link, when string, want []byte, epoch int) {
	if got := le.Uint64(t.l.ring[ringSize:]); got != uint64(epoch) {
		t.w.failf("rank %d: %s of epoch %d the counter is %d", t.l.rank, when, epoch, got)
	}
	t.sameBytes(k, when+" the ring holds", t.l.ring[:ringSize], want)
}
