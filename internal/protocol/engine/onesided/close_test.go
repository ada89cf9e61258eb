package onesided

import (
	"bytes"
	"errors"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// TestLateAnswerOfAClosedAccessTouchesNothing forgets an access while answers to it are
// under way: its calls end with an error, and the answers go nowhere.
func TestLateAnswerOfAClosedAccessTouchesNothing(t *testing.T) {
	f := newRanks(t, 2, 64<<10, nil)
	a, e := f.access(0, 1), f.e[0]
	for i := range f.mem[1] {
		f.mem[1][i] = 0xff
	}
	plain, followed, spread, large := make([]byte, 64), make([]byte, 64), make([]byte, 128), make([]byte, 64<<10)
	release := f.Detain(1, 0)
	var r Request
	f.issue(e, &Call{Access: a, Code: wire.CodeGet, Result: plain})
	f.issue(e, &Call{Access: a, Code: wire.CodeGet, Result: followed, Request: &r})
	d := committed(datatype.Vector(64, 1, 2, datatype.Byte))
	typed := e.Typed(&Local{}, &Local{Mem: spread, Type: d, Count: 1}, d, 1, 64)
	f.issue(e, &Call{Access: a, Code: wire.CodeGet, Typed: typed})
	half := &Call{Access: a, Code: wire.CodeGet, Result: large}
	if done, _ := e.Issue(half); !done {
		t.Log("the large get is on its way out")
	}
	f.Settle()
	e.CloseAccess(a)
	if !r.Met() || !errors.Is(r.Err(), mpierr.Win) {
		t.Errorf("the followed call: met %v, %v", r.Met(), r.Err())
	}
	if !(*LocalWait)(a).Met() {
		t.Error("calls are still outstanding")
	}
	release()
	for _, b := range [][]byte{plain, followed, spread, large} {
		if !bytes.Equal(b, make([]byte, len(b))) {
			t.Errorf("a late answer wrote to the result of %d bytes", len(b))
		}
	}
	f.atRest()
}

// TestLockAfterALateUnlock gives up a lock and asks for it again, while the frame that gives
// it up is lost, or late.
func TestLockAfterALateUnlock(t *testing.T) {
	for _, give := range []func(e *rank, a *Access){
		func(e *rank, a *Access) { e.Leave(a) },
		func(e *rank, a *Access) { e.Unlock(a); a.Unlocked() },
	} {
		f := newRanks(t, 2, 64, nil)
		e, a := f.e[0], f.access(0, 1)
		e.Lock(a, true)
		f.Settle()
		lost := false
		f.Filter = func(from, _ int, payload []byte) int {
			if from == 0 && kindOfFrame(payload) == wire.KindData && !lost {
				lost = true
				return 0
			}
			return 1
		}
		give(e, a)
		f.Settle()
		if !lost {
			t.Fatal("the unlock was not sent")
		}
		f.Until(1000*millisecond, func() bool { return e.Lock(a, true) })
		f.Until(1000*millisecond, (*LockWait)(a).Met)
		if !a.Held() {
			t.Errorf("the next lock: %v", a.TakeError())
		}
		e.Unlock(a)
		f.flush(e, a)
		a.Unlocked()
		f.atRest()
	}
}

// TestAccessToFollows looks for accesses in turn, and again once they are closed and opened anew: none is mistaken
// for the one that was looked for before.
func TestAccessToFollows(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	s, e := f.access(0, 1).session, f.e[0]
	open := map[uint32]*Access{testWindow: s.accessTo(testWindow), 8: e.OpenAccess(s, 8)}
	check := func(when string) {
		t.Helper()
		for _, id := range []uint32{8, 8, testWindow, 9, testWindow, 8} {
			if a := s.accessTo(id); a != open[id] {
				t.Errorf("%s, window %d: %p, not %p", when, id, a, open[id])
			}
		}
	}
	check("at first")
	e.CloseAccess(open[8])
	delete(open, 8)
	check("after an access was closed")
	open[8] = e.OpenAccess(s, 8)
	check("after it was opened anew")
}
