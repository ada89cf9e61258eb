package onesided

import (
	"errors"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// An origin that has waited long for answers, though the target has applied its requests,
// asks about them. The target takes the inquiry in after the requests before
// it, and what it answers comes after their answers. So an operation that is not over
// when all answers up to that have come will never be: the target does not know its
// request. A request for a lock is the exception. It may wait as long as others hold the
// lock, so the target is asked whether it does.

// inquiry is what an origin has asked a peer.
type inquiry struct {
	number   uint64 // of the last one
	sent     bool   // and not answered
	seq      uint64 // of its bundle
	refusals uint32 // that the peer had told of by then
	answer   uint64 // sequence of the answer that is to be judged; 0: there is none

	// Of one that the peer has applied and not answered:
	looks int    // at it
	last  uint64 // the bundle of responses that had come last
	since int64  // when that was first seen
	idle  int    // looks since then
}

var (
	errUnknown = errors.New("it has taken a request and does not know of it: its frames are forged, or its process is at fault")
	errUntold  = errors.New("it has counted refusals and not told of them: its frames are forged, or its process is at fault")
	errIdle    = errors.New("it lives, and has not answered within the limit what it was asked")
)

// Inquire is called now and then while s owes something. It asks s about operations that
// have waited for long, or judges what s has answered to that. It reports whether it has
// asked. The error says that s will never answer.
func (x *Origin) Inquire(s *Peer) (asked bool, fault error) {
	q := &s.inquiry
	if q.answer != 0 && s.Heard(link.Response, q.answer) {
		q.answer = 0
		if fault := x.judge(s); fault != nil {
			return false, fault
		}
	}
	switch {
	case q.sent && q.seq >= s.Acked(link.Request): // it may have to wait for room at s
		return false, nil
	case q.sent:
		if again, fault := q.look(s, x.link.Now, x.cfg.DeadAfter); !again {
			return false, fault
		}
	case !x.waitsLong(s):
		return false, nil
	}
	return x.inquire(s), nil
}

// look says of an inquiry that s has applied whether to send another: other answers come,
// and that to it does not. If none come, s has failed after the limit. Several looks must
// have been in vain, so that a pause of this process is not taken for idleness of s.
func (q *inquiry) look(s *Peer, now, limit int64) (again bool, fault error) {
	q.looks++
	if last := s.Answering(); q.looks == 1 || last != q.last {
		q.last, q.since, q.idle = last, now, 0
		return q.looks > 2, nil
	}
	if q.idle++; q.idle > 2 && now-q.since >= limit/2 {
		return false, errIdle
	}
	return false, nil
}

// judge returns why s will never answer, given its answer to an inquiry.
func (x *Origin) judge(s *Peer) error {
	if int32(s.inquiry.refusals-s.refusalsSeen) > 0 {
		return errUntold
	}
	for i := s.newest; i != link.None; i = x.ops[i].next {
		if x.ops[i].asked {
			return errUnknown
		}
	}
	return nil
}

// waitsLong reports whether an operation at s waits since the last call, or refusals do
// that s has counted.
func (x *Origin) waitsLong(s *Peer) (long bool) {
	for i := s.newest; i != link.None; i = x.ops[i].next {
		if o := &x.ops[i]; o.sent {
			long = long || o.seen
			o.seen = true
		}
	}
	return long || s.hidesRefusals()
}

// hidesRefusals reports whether s has counted refusals that have not arrived.
func (s *Peer) hidesRefusals() bool { return int32(s.Told.Heard-s.refusalsSeen) > 0 }

// inquire sends an inquiry, if there is room. The locks that it has no room for are not
// asked about.
func (x *Origin) inquire(s *Peer) bool {
	q := &s.inquiry
	number := q.number + 1
	for i := s.newest; i != link.None; i = x.ops[i].next {
		o := &x.ops[i]
		if !o.sent {
			continue
		}
		// The operations that travel with a lock wait with it.
		if o.asked = o.access.lock != locking; !o.asked && o.asksLock() {
			r := wire.Record{Code: wire.CodeInquiry, Window: o.access.window, Token: x.token(i), Disp: number}
			o.asked = x.addInquiry(s, &r)
		}
	}
	if !x.addInquiry(s, &wire.Record{Code: wire.CodeInquiry, Disp: number}) {
		return false
	}
	if !q.sent {
		s.Owe(1)
	}
	*q = inquiry{number: number, sent: true, seq: x.link.Sequence(s.Begun(link.Request)), refusals: s.Told.Heard}
	return true
}

// addInquiry adds a record to a bundle that is applied after all before it, and returns false without room.
func (x *Origin) addInquiry(s *Peer, r *wire.Record) bool {
	i := s.Room(link.Request, 0)
	if i == link.None {
		return false
	}
	x.link.Append(i, r, 0)
	x.link.Mark(i, wire.FlagAfterAll|wire.FlagAckNow)
	return true
}

// takeWaits takes in an answer to an inquiry, and reports whether it is one. Only that to the
// last one counts.
func (x *Origin) takeWaits(s *Peer, r *wire.Record) bool {
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
