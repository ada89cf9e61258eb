package onesided

import (
	"bytes"
	"errors"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// waits has rank 0 take in a bundle of rank 1 that answers an inquiry.
func (f *ranks) waits(seq, number uint64) {
	f.e[0].Receive(forgery(f.e[1].Session(0), &wire.Record{Code: wire.CodeWaits, Disp: number}, nil, func(h *wire.Header) {
		h.Flags, h.Sequence = wire.FlagResponse, seq
	}), 1)
}

// inquires reports whether a frame holds all of the inquiry with that number.
func inquires(b []byte, number uint64) bool {
	r := make([]byte, wire.RecordSize(0))
	wire.PutRecord(r, &wire.Record{Code: wire.CodeInquiry, Disp: number}, 0)
	return bytes.HasSuffix(b, r)
}

// TestAnswersToInquiries has a peer answer the first of two inquiries, the second, and one that
// was never made, each twice. Between the two a get was issued, which the first is not about.
func TestAnswersToInquiries(t *testing.T) {
	for _, test := range []struct {
		number, bad uint64
		owed        int32
		fault       error
	}{
		{number: 0, owed: 3},
		{number: 1, owed: 3},
		{number: 2, owed: 2, fault: errUnknown},
		{number: 3, owed: 3, bad: 2},
	} {
		f := newRanks(t, 2, 64, nil)
		a, e := f.access(0, 1), f.e[0]
		s := a.session
		f.waits(1, 0) // before there was any
		f.Cut[1] = true
		for range 2 {
			f.issue(e, &Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8)})
			if !e.inquire(s) {
				t.Fatal("there is no room to inquire")
			}
			f.Settle()
		}
		f.waits(2, test.number)
		f.waits(3, test.number)
		if s.Owed() != test.owed || e.Stats.BadAnswers != test.bad {
			t.Errorf("after answers to inquiry %d the peer owes %d, want %d; %d made no sense, want %d", test.number, s.Owed(), test.owed, e.Stats.BadAnswers, test.bad)
		}
		if _, fault := e.Inquire(s); !errors.Is(fault, test.fault) {
			t.Errorf("after answers to inquiry %d: %v, want %v", test.number, fault, test.fault)
		}
	}
}

// TestCallInPartsIsNotAskedAbout has a caller issue a part of a get, and be away for long
// before it issues the rest. Meanwhile the target is asked about a lock.
func TestCallInPartsIsNotAskedAbout(t *testing.T) {
	const size = (issueBudget + 1) * wire.MaxPart
	f := newRanks(t, 2, size, nil)
	a := f.access(0, 1)
	c := &Call{Access: a, Code: wire.CodeGet, Result: make([]byte, size)}
	if done, err := f.e[0].Issue(c); done || err != nil {
		t.Fatal(done, err)
	}
	f.Pass(10 * f.e[0].cfg.DeadAfter)
	if n := a.session.inquiry.number; n != 0 {
		t.Errorf("%d inquiries were made about a call that has not been issued yet", n)
	}
	w, locks := f.expose(1000, 8)
	f.e[1].Lock(f.e[1].OpenLocal(w), true)
	f.e[0].Lock(locks, true)
	f.Pass(10 * f.e[0].cfg.DeadAfter)
	if a.session.inquiry.number == 0 {
		t.Error("no inquiry was made about a lock")
	}
	f.issue(f.e[0], c)
	if err := f.flush(f.e[0], a); err != nil {
		t.Errorf("a healthy session ended: %v", err)
	}
}

// TestGrantOnItsWayIsKnown has a target give its own lock back just before an inquiry about it
// arrives. Of what goes back, the answer to that comes first, and the rest is late.
func TestGrantOnItsWayIsKnown(t *testing.T) {
	const size = 4096 // its results leave no room beside them for the grant
	f := newRanks(t, 2, size, nil)
	a, target := f.access(0, 1), f.e[1]
	own := target.OpenLocal(target.Windows().Lookup(testWindow))
	target.Lock(own, true)
	f.e[0].Lock(a, true)
	if done, err := f.e[0].Issue(&Call{Access: a, Code: wire.CodeGet, Result: make([]byte, size)}); !done || err != nil {
		t.Fatal(done, err)
	}
	f.e[0].Flush(a)
	answers, late := 0, true
	f.Filter = func(from, to int, b []byte) int {
		var h wire.Header
		switch {
		case h.Decode(b) != wire.OK || h.Kind != wire.KindData:
		case from == 0 && inquires(b, 1):
			target.Unlock(own)
		case from == 1 && h.Flags&wire.FlagResponse != 0 && h.Sequence != 1 && late: // nor in pieces
			return 0
		case from == 1 && h.Flags&wire.FlagResponse != 0:
			answers++
		}
		return 1
	}
	f.Pass(f.e[0].cfg.DeadAfter)
	if answers == 0 || a.lock == locked {
		t.Fatalf("%d answers have arrived, and the lock is in phase %d: this shows nothing", answers, a.lock)
	}
	late = false
	f.Pass(f.e[0].cfg.DeadAfter / 2)
	if err := a.TakeError(); err != nil || a.lock != locked || !(*FlushWait)(a).Met() {
		t.Errorf("the lock was not granted: %v, %s", err, f.Describe())
	}
}

// TestResumedBundles has the request of rank 0 for a lock be resumed, while another bundle of
// its waits for its turn.
func TestResumedBundles(t *testing.T) {
	f := newRanks(t, 3, 64, nil)
	a, target := f.access(0, 1), f.e[1]
	f.access(2, 1)
	own := target.OpenLocal(target.Windows().Lookup(testWindow))
	target.Lock(own, true)
	f.e[0].Lock(a, true)
	f.Pass(millisecond)
	target.Receive(forgery(a.session, &wire.Record{Code: wire.CodePing}, nil, func(h *wire.Header) {
		h.Flags, h.Order = wire.FlagOrdered, 5
	}), 0)
	resumed := func(rank int, window uint32) bool {
		return target.Link.Resumed(target.Session(rank).Session, window)
	}
	if resumed(0, testWindow) {
		t.Error("a lock that others hold counts as granted")
	}
	target.Unlock(own)
	if !resumed(0, testWindow) || resumed(0, testWindow+1) || resumed(0, 0) || resumed(2, testWindow) {
		t.Error("one bundle was resumed, of rank 0 with the window as its key, and others count as resumed, or it does not")
	}
	f.Pass(millisecond)
	if resumed(0, testWindow) {
		t.Error("a request that has been answered counts as waiting")
	}
}

// TestInquiryThatWaitsEndsNoSession has a peer take in what it is sent, an inquiry too, and for
// long apply nothing of it.
func TestInquiryThatWaitsEndsNoSession(t *testing.T) {
	f := newRanks(t, 2, 64, func(c *setup) {
		if c.Rank == 1 {
			c.DeadAfter = 60_000 * millisecond // its answers are late
		}
	})
	a := f.access(0, 1)
	f.Pass(millisecond)
	f.Filter = func(from, _ int, b []byte) int {
		var h wire.Header
		if from == 0 || h.Decode(b) != wire.OK {
			return 1
		}
		b = b[:wire.HeaderLen]
		h.Kind, h.Flags, h.Packet, h.Sequence, h.Order, h.AckRequests = wire.KindAck, 0, 0, 0, 0, 1
		h.Encode(b)
		f.e[0].Receive(b, 1)
		return 0
	}
	f.issue(f.e[0], &Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8)})
	f.e[0].Flush(a)
	f.Pass(f.e[0].cfg.DeadAfter * 19 / 10)
	if n := a.session.inquiry.number; n != 1 {
		t.Errorf("%d inquiries were made, want 1", n)
	}
	f.Filter = nil
	f.Pass(f.e[0].cfg.DeadAfter)
	if err := a.TakeError(); err != nil || !(*FlushWait)(a).Met() {
		t.Errorf("the get has not ended: %v, %s", err, f.Describe())
	}
}

// TestLostInquiryIsRepeated has forged frames take the places of a get and of the inquiry about
// it, while others are answered.
func TestLostInquiryIsRepeated(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a, ping := f.access(0, 1), &wire.Record{Code: wire.CodePing}
	f.Pass(millisecond)
	f.e[1].Receive(forgery(a.session, ping, nil, nil), 0)
	f.Filter = func(from, _ int, b []byte) int {
		var genuine wire.Header
		if from == 0 && inquires(b, 1) && genuine.Decode(b) == wire.OK {
			f.e[1].Receive(forgery(a.session, ping, nil, func(h *wire.Header) { h.Sequence = genuine.Sequence }), 0)
		}
		return 1
	}
	var lost Request
	f.issue(f.e[0], &Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8), Request: &lost})
	for end := f.Now + 3*f.e[0].cfg.DeadAfter; !lost.Met() && f.Now < end; f.Pass(100 * millisecond) {
		f.issue(f.e[0], &Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8), Request: &Request{}})
	}
	if !errors.Is(lost.Err(), errUnknown) {
		t.Errorf("the call has not ended: %v, %s", lost.Err(), f.Describe())
	}
}
