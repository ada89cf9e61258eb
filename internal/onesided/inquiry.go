package onesided

import (
	"errors"

	"github.com/xdprma/xdprma/internal/link"
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/wire"
)

// An origin that has waited long for answers, though the target has applied its requests,
// asks about them. The inquiry is a fence: the target takes it in after the requests before
// it, and what it answers comes after their answers. So an operation that is not over
// when all answers up to that have come will never be: the target does not know its
// request. A request for a lock is the exception. It may wait as long as others hold the
// lock, so the target is asked whether it does.

// inquiry is what an origin has asked a peer.
type inquiry struct {
	number   uint64 // of the last one sent
	sent     bool   // and not answered
	refusals uint32 // that the peer had told of by then
	answer   uint64 // sequence of the answer that is to be judged; 0: there is none
}

var (
	errUnknown    = errors.New("it has taken a request and does not know of it: its frames are forged, or its process is at fault")
	errUnanswered = errors.New("it has counted refusals and not told of them: its frames are forged, or its process is at fault")
)

// Inquire asks s about what it owes, or judges what it has answered to that. It reports
// whether it has asked. The error says that s will never answer.
func (x *Operations) Inquire(s *Peer) (asked bool, fault error) {
	q := &s.inquiry
	if q.answer != 0 && s.Heard(link.Response, q.answer) {
		q.answer = 0
		if int32(q.refusals-s.refusalsSeen) > 0 {
			return false, errUnanswered
		}
		for i := range x.ops {
			if o := &x.ops[i]; o.used && o.asked && o.access.session == s {
				return false, errUnknown
			}
		}
	}
	if s.Owed() == 0 && !s.hidesRefusals() {
		return false, nil
	}
	return x.inquire(s), nil
}

// hidesRefusals reports whether s has counted refusals that have not arrived.
func (s *Peer) hidesRefusals() bool { return int32(s.Told.Heard-s.refusalsSeen) > 0 }

// inquire sends an inquiry, if there is room for all of it.
func (x *Operations) inquire(s *Peer) bool {
	locks := 0
	for i := range x.ops {
		if o := &x.ops[i]; o.waitsAt(s) && o.asksLock() {
			locks++
		}
	}
	locks = min(locks, (s.MaxPayload()-wire.HeaderLen)/wire.RecordLen-1)
	i := s.Room(link.Request, wire.RecordLen*locks)
	if i == link.None {
		return false
	}
	q := &s.inquiry
	if !q.sent {
		s.Owe(1)
	}
	*q = inquiry{number: q.number + 1, sent: true, refusals: s.Told.Heard}
	for n := range x.ops {
		o := &x.ops[n]
		if !o.waitsAt(s) {
			continue
		}
		// The operations that travel with a lock wait with it.
		if o.asked = o.access.lock != locking || o.asksLock() && locks > 0; o.asked && o.asksLock() {
			x.link.Append(i, &wire.Record{Code: wire.CodeInquiry, Window: o.access.window, Token: x.token(int32(n)), Disp: q.number}, 0)
			locks--
		}
	}
	x.link.Append(i, &wire.Record{Code: wire.CodeInquiry, Disp: q.number}, 0)
	x.link.Mark(i, wire.FlagFence|wire.FlagAckNow)
	return true
}

// waitsAt reports whether all of o has been requested of s.
func (o *op) waitsAt(s *Peer) bool { return o.used && o.sent && o.access.session == s }

// takeInquiry answers whether a request of s for the lock of a window waits; without a
// token, that everything before has been answered.
func (x *Operations) takeInquiry(s *Peer, r *wire.Record) mpierr.Class {
	waits := x.waits[lockKey{r.Window, s.ID()}] != nil || x.link.Resumed(s.Session, r.Window)
	if r.Token != 0 && !waits {
		return mpierr.Success // it has been granted or refused, which s hears first, or was never asked for
	}
	if !x.respond(s, &wire.Record{Code: wire.CodeWaits, Window: r.Window, Token: r.Token, Disp: r.Disp}) {
		return stuck
	}
	return mpierr.Success
}

// takeWaits takes in an answer to an inquiry, and reports whether it is one. Only that to the
// last one counts.
func (x *Operations) takeWaits(s *Peer, r *wire.Record) bool {
	q := &s.inquiry
	switch {
	case r.Disp != q.number:
		return r.Disp < q.number
	case r.Token != 0:
		if i := x.find(s, r.Token); i != link.None {
			x.ops[i].asked = false
		}
	case q.sent:
		q.sent, q.answer = false, s.Answering()
		s.Owe(-1)
	}
	return true
}
