package onesided

import (
	"errors"
	"testing"

	"github.com/xdprma/xdprma/internal/link"
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/wire"
)

// TestPeerThatAppliesNothingIsGivenUp has a peer acknowledge all that it is sent, and
// never say that anything has taken effect. It may lack room while a third rank is found
// dead, and is not waited for much longer.
func TestPeerThatAppliesNothingIsGivenUp(t *testing.T) {
	f := newFabric(t, 2, 64, nil)
	a := f.access(0, 1)
	f.pass(millisecond)
	applied := a.session.Acked(link.Request)
	f.filter = func(from, _ int, b []byte) int {
		var h wire.Header
		if from == 1 && h.Decode(b) == wire.OK && (h.Kind == wire.KindAck || h.Kind == wire.KindData) {
			h.AckRequests = applied
			h.Encode(b)
		}
		return 1
	}
	f.issue(f.e[0], &Call{Access: a, Code: wire.CodePut, Origin: word(1)})
	f.e[0].Flush(a)
	f.pass(8000 * millisecond)
	if a.session.Dead() {
		t.Fatal("a peer that may lack room was given up")
	}
	f.pass(8000 * millisecond)
	if err := a.TakeError(); !a.session.Dead() || !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("the session outlives its peer: %v, %s", err, f.describe())
	}
}

// forgery is a data frame that only somebody who has seen frames of the session can make.
func forgery(s *Peer, r *wire.Record, data []byte, change func(*wire.Header)) []byte {
	h := wire.Header{Kind: wire.KindData, Session: s.PeerID(), Packet: 1, Sequence: s.Next(link.Request)}
	if change != nil {
		change(&h)
	}
	b := make([]byte, wire.HeaderLen+wire.RecordSize(len(data)))
	copy(wire.PutRecord(b[wire.HeaderLen:], r, len(data)), data)
	h.Encode(b)
	return b
}

// lockAndGet asks for a lock, and has a get travel with it.
func lockAndGet(f *fabric, a *Access) {
	f.t.Helper()
	f.e[0].Lock(a, true)
	if done, err := f.e[0].Issue(&Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8)}); !done || err != nil {
		f.t.Fatal(done, err)
	}
}

// TestForgedFrameHangsNoCall has a forged frame take the sequence of a genuine one, which then
// counts as received: the call on it ends with an error within the limit, though the peer
// lives and answers all else.
func TestForgedFrameHangsNoCall(t *testing.T) {
	far := func(h *wire.Header) { h.Packet = 1 << 20 } // further than any that was sent
	for name, issue := range map[string]func(f *fabric, a *Access){
		"get": func(f *fabric, a *Access) {
			f.issue(f.e[0], &Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8)})
		},
		"lock":         func(f *fabric, a *Access) { f.e[0].Lock(a, true) },
		"lock and get": lockAndGet,
	} {
		t.Run(name, func(t *testing.T) {
			for _, change := range []func(*wire.Header){nil, far} {
				f := newFabric(t, 2, 64, nil)
				a := f.access(0, 1)
				f.pass(millisecond)
				f.e[1].Receive(forgery(a.session, &wire.Record{Code: wire.CodePing}, nil, change), 0)
				issue(f, a)
				f.e[0].Flush(a)
				f.pass(f.e[0].cfg.DeadAfter)
				if change != nil { // the peer's acknowledgements make no sense any more
					f.pass(1000 * millisecond)
				}
				if err := a.TakeError(); !a.session.Dead() || !errors.Is(err, mpierr.ProcFailed) || change == nil && !errors.Is(err, errUnknown) {
					t.Errorf("the call has not ended: %v, %s", err, f.describe())
				}
			}
		})
	}
}

// TestPeerThatAnswersNothingIsGivenUp has a peer apply all that it is sent, and lose its
// answers.
func TestPeerThatAnswersNothingIsGivenUp(t *testing.T) {
	f := newFabric(t, 2, 64, nil)
	a := f.access(0, 1)
	f.pass(millisecond)
	f.filter = func(from, _ int, b []byte) int {
		var h wire.Header
		if from == 1 && h.Decode(b) == wire.OK && h.Kind == wire.KindData {
			h.Kind = wire.KindAck
			clear(b[wire.HeaderLen:])
			h.Encode(b[:wire.HeaderLen])
			f.e[0].Receive(b[:wire.HeaderLen], 1)
			return 0
		}
		return 1
	}
	f.issue(f.e[0], &Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8)})
	f.e[0].Flush(a)
	f.pass(f.e[0].cfg.DeadAfter * 5 / 4)
	if err := a.TakeError(); !a.session.Dead() || !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("the call has not ended: %v, %s", err, f.describe())
	}
}

// TestForgedRefusalsHangNoFlush has a forged frame say that the peer has refused more
// requests than it has.
func TestForgedRefusalsHangNoFlush(t *testing.T) {
	f := newFabric(t, 2, 64, nil)
	a := f.access(0, 1)
	f.pass(millisecond)
	f.e[0].Receive(forgery(f.e[1].Session(0), &wire.Record{Code: wire.CodePing}, nil, func(h *wire.Header) { h.Refusals = 7 }), 1)
	f.issue(f.e[0], &Call{Access: a, Code: wire.CodePut, Origin: word(1)})
	f.e[0].Flush(a)
	f.pass(f.e[0].cfg.DeadAfter)
	if err := a.TakeError(); !(*FlushWait)(a).Met() || !errors.Is(err, errUnanswered) {
		t.Errorf("the flush has not ended: %v, %s", err, f.describe())
	}
}

// TestQueuedLocksAreKnown has locks wait as long as others hold them, with operations behind
// them, while the peer is asked about them again and again.
func TestQueuedLocksAreKnown(t *testing.T) {
	f := newFabric(t, 3, 64, nil)
	held, a := f.access(2, 1), f.access(0, 1)
	f.e[2].Lock(held, true)
	f.e[2].Flush(held)
	f.pass(millisecond)
	lockAndGet(f, a)
	f.issue(f.e[0], &Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8)}) // kept back
	f.e[0].Flush(a)
	for range 60 {
		f.pass(1000 * millisecond)
	}
	if a.session.Dead() || a.lock != locking {
		t.Fatalf("the lock is not waited for: %v, %s", a.TakeError(), f.describe())
	}
	f.e[2].Unlock(held)
	f.e[2].Flush(held)
	f.pass(10_000 * millisecond)
	if err := a.TakeError(); !(*FlushWait)(a).Met() || a.lock != locked || err != nil {
		t.Errorf("the lock was not granted: %v, %s", err, f.describe())
	}
}
