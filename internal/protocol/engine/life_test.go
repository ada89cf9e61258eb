package engine

import (
	"bytes"
	"errors"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// A peer falls silent in the midst of everything: every wait ends with the
// process-failed class, and nothing stays allocated.
func TestSilentPeerFailsEverything(t *testing.T) {
	f := newRanks(t, 3, 1<<20, nil)
	a := f.access(0, 1)
	back := f.access(1, 0)
	late := f.access(2, 1)
	e := f.e[0]
	local := f.e[1]
	var request onesided.Request
	local.Lock(local.OpenLocal(local.Windows().Lookup(testWindow)), true) // so that locks queue
	e.Lock(a, true)
	f.Settle()
	f.e[1].Issue(&onesided.Call{Access: back, Code: wire.CodeGet, Result: make([]byte, 200_000)})
	f.Step() // rank 0 has answers in flight, too
	f.Cut[1] = true
	b := e.OpenAccess(sessionAt(a), 8)
	e.Issue(&onesided.Call{Access: b, Code: wire.CodeGet, Result: make([]byte, 1<<20), Request: &request})
	e.Issue(&onesided.Call{Access: b, Code: wire.CodePut, Origin: make([]byte, 1<<20)})
	f.send(0, 1, 1, 1, []byte("gone"))
	message := f.receive(2, 1, 1, 1, 8)
	start := f.Now
	f.Until(7500*millisecond, func() bool {
		return (*onesided.LockWait)(a).Met() && (*onesided.FlushWait)(b).Met() && request.Met() && message.Met()
	})
	t.Logf("found dead after %d ms", (f.Now-start)/millisecond)
	for _, err := range []error{a.TakeError(), b.TakeError(), request.Err(), sessionAt(a).Err(), sessionAt(late).Err()} {
		if !errors.Is(err, mpierr.ProcFailed) {
			t.Errorf("got %v, want process failed", err)
		}
	}
	if _, err := e.Issue(&onesided.Call{Access: a, Code: wire.CodePut, Origin: word(1)}); !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("a later put: %v", err)
	}
	f.atRest()
	f.Cut[1] = false // the partition heals: the other side hears that it is over
	f.Pass(1000 * millisecond)
	if err := sessionAt(back).Err(); !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("the other side: %v", err)
	}
	f.atRest()
}

// TestByeWhileDialing has a rank send a message and leave before its peer has answered the
// first frame: the message arrives, and the peer learns that the rank has left.
func TestByeWhileDialing(t *testing.T) {
	f := newRanks(t, 3, 8, nil)
	f.dial(0, 2) // nothing is for this one
	p := f.send(0, 1, 1, 7, content(1, 8))
	f.e[0].Bye("")
	wait := &ByeWait{f.e[0]}
	if !p.Met() || wait.Met() {
		t.Fatal("the message has not been taken over, or is taken for delivered")
	}
	f.Until(1000*millisecond, wait.Met)
	r := f.receive(1, 0, 1, 7, 8)
	if !r.Met() || r.Err() != nil || !bytes.Equal(r.Buffer, content(1, 8)) || f.e[1].Session(0).Left() == nil {
		t.Errorf("the message: %v, %v; left: %v", r.Buffer, r.Err(), f.e[1].Session(0).Left())
	}
	f.atRest()
}

// TestOneWayLossIsNoticedInTime loses all that one rank sends to another: both notice
// within the limit and the time that it takes to ask.
func TestOneWayLossIsNoticedInTime(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a := f.access(0, 1)
	f.dial(1, 0)
	f.Settle()
	f.Filter = func(from, _ int, _ []byte) int { return 1 - from }
	f.e[0].Issue(&onesided.Call{Access: a, Code: wire.CodePut, Origin: word(1)})
	f.e[0].Flush(a)
	in := f.receive(1, 0, 1, 1, 8)
	f.Until(testLimit+2*testLimit/4, func() bool { return (*onesided.FlushWait)(a).Met() && in.Met() })
	if !errors.Is(a.TakeError(), mpierr.ProcFailed) || !errors.Is(in.Err(), mpierr.ProcFailed) {
		t.Errorf("the flush: %v; the receive: %v", a.TakeError(), in.Err())
	}
}
