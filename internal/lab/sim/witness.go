package sim

import (
	"errors"

	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// A witness is a task of a rank beside its programs. It gets a word of another rank now
// and then, and sees that ranks which no fault comes between answer each other in time,
// whatever happens to the rest. It also takes a lock and writes messages, and some of its
// calls are given up. It hears rumours that ranks have ended.
const (
	witnessWindow = 1000
	witnessTask   = 1000
	guardedWords  = 8
	witnessLength = 8 + 8*guardedWords // a constant, and words under the lock, which are equal

	// answerBound is how long a get of a few bytes may take between ranks that no fault
	// comes between: frames lost several times over, and timeouts that have grown.
	answerBound = 2 * second
)

var errRumour = errors.New("its connection was lost")

// witness is what a rank keeps for it.
type witness struct {
	mem    []byte
	holder *task // who holds the lock here

	written uint64 // messages
}

// bearWitness is the body of the task.
func (t *task) bearWitness() {
	w := t.w
	le.PutUint64(t.l.witness.mem, uint64(t.l.rank)<<32|t.l.incarnation)
	pause := max(2*millisecond, (w.plan.faultsEnd-w.now)/50)
	for !t.l.quiet {
		t.doing = "sleep"
		t.sleep(w.span(0, pause))
		to := w.nodes[w.rng.IntN(len(w.nodes))]
		if to == t.l || t.l.quiet {
			continue
		}
		s := t.l.dial(to)
		a := t.l.access(s, witnessWindow)
		there := t.l.only(a, to.windows.Lookup(witnessWindow).Checker() != nil)
		switch n := w.rng.IntN(10); {
		case n < 3:
			t.witnessLock(to, there, a)
		case n < 5:
			t.writeMail(to, s)
		case n < 6 && w.calm(t.l.rank, to.rank, second):
			t.l.e.Suspected(to.rank, to.incarnation, true, errRumour) // it lives, and answers
		default:
			t.witnessGet(to, there, a)
		}
	}
}

// issueAt issues a call that p may end, and reports whether it went out.
func (t *task) issueAt(p patience, to *life, there *epochs.Window, c onesided.Call) bool {
	start := t.w.now
	err := t.carryOut(p, there, &epochs.Operation{Call: c, Name: "call", Target: to.rank}, nil)
	return !errors.Is(err, mpierr.Timeout) && !t.failedAt(to, err, start)
}

func (t *task) witnessGet(to *life, there *epochs.Window, a *onesided.Access) {
	t.doing = "witness: get"
	p, start, word := t.patience(), t.w.now, make([]byte, 8)
	behind := !(*onesided.LockWait)(a).Met() // a lock that was given up, and that a third rank may hold
	var r onesided.Request
	if !t.issueAt(p, to, there, onesided.Call{Code: wire.CodeGet, Result: word, Request: &r}) || !t.awaitWith(p, r.Met) ||
		t.failedAt(to, r.Err(), start) {
		return
	}
	if got := le.Uint64(word); got != uint64(to.rank)<<32|to.incarnation && got != 0 {
		t.w.failf("rank %d got %x from rank %d", t.l.rank, got, to.rank)
	}
	if took := t.w.now - start; took > answerBound && !behind && t.w.undisturbed(t.l.rank, to.rank, start) {
		t.w.failf("rank %d waited %d ms for a word of rank %d, though no fault came between them", t.l.rank, took/millisecond, to.rank)
	}
}

// witnessLock changes words under the exclusive lock. If it is given up before the lock
// is held, it leaves the lock to others; after that, it asks again for what is left.
func (t *task) witnessLock(to *life, there *epochs.Window, a *onesided.Access) {
	t.doing = "witness: lock"
	e, p, start := t.l.e, t.patience(), t.w.now
	for !e.Lock(a, true) {
		if !t.awaitWith(p, (*onesided.RoomWait)(a).Met) {
			e.Leave(a)
			return
		}
	}
	e.Flush(a)
	if !t.awaitAt(a, p, (*onesided.LockWait)(a).Met) {
		e.Leave(a)
		return
	}
	if t.failedAt(to, a.TakeError(), start) {
		return
	}
	if !a.Held() {
		t.w.failf("rank %d: a lock of rank %d is neither held nor refused", t.l.rank, to.rank)
	}
	t.witnessHold(to, there, a)
	t.doing = "witness: unlock"
	for !e.Unlock(a) {
		t.await((*onesided.ReleaseWait)(a).Met)
	}
	for !t.awaitWith(t.patience(), (*onesided.UnlockWait)(a).Met) {
		t.sleep(t.w.span(0, millisecond))
	}
	a.Unlocked()
	t.failedAt(to, a.TakeError(), start)
}

// witnessHold acts while the lock is held.
func (t *task) witnessHold(to *life, there *epochs.Window, a *onesided.Access) {
	t.doing = "witness: hold a lock"
	start := t.w.now
	if h := to.witness.holder; h != nil {
		if _, gone := t.w.mayFail(to, h.l); !gone {
			t.w.failf("ranks %d and %d hold a lock of rank %d", t.l.rank, h.l.rank, to.rank)
		}
	}
	to.witness.holder = t
	block := make([]byte, 8*guardedWords)
	var r onesided.Request
	if t.issueAt(endless, to, there, onesided.Call{Code: wire.CodeGet, Disp: 8, Result: block, Request: &r}) {
		t.l.e.FlushLocal(a)
		t.await((*onesided.LocalWait)(a).Met)
		if !t.failedAt(to, r.Err(), start) {
			next := le.Uint64(block) + 1
			for i := 0; i < len(block); i += 8 {
				if le.Uint64(block[i:]) != next-1 {
					t.w.failf("rank %d: words of rank %d differ under the lock: %x", t.l.rank, to.rank, block)
				}
				le.PutUint64(block[i:], next)
			}
			t.issueAt(endless, to, there, onesided.Call{Code: wire.CodePut, Disp: 8, Origin: block})
		}
	}
	if to.witness.holder == t {
		to.witness.holder = nil
	}
}
