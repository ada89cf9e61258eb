package engine

import (
	"github.com/xdprma/xdprma/internal/protocol/engine/message"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// upper is what the link calls. It says in which order the services hear of something.
type upper Engine

// Begin implements link.Upper.
func (u *upper) Begin() *link.Session {
	s := &Session{}
	s.Upper = s
	s.mail = message.NewPeer(&s.Session)
	s.ops = onesided.NewPeer(&s.Session)
	return &s.Session
}

// Apply implements link.Upper.
func (u *upper) Apply(b *link.Bundle) bool {
	return u.Operations.Apply(&sessionOf(b.Session).ops, b)
}

// Answers implements link.Upper.
func (u *upper) Answers(s *link.Session, body []byte) {
	u.Operations.Answers(&sessionOf(s).ops, body)
}

// Ready implements link.Upper.
func (u *upper) Ready(to *link.Session) {
	s := sessionOf(to)
	if !u.View.UpToDate(&s.Member) {
		u.View.Ready(to)
	}
	if !s.ops.UpToDate() {
		u.Operations.Ready(&s.ops)
	}
	if !s.mail.UpToDate() {
		u.Messages.Ready(&s.mail)
	}
	if s.leaving {
		(*Engine)(u).sayBye(s)
	}
}

// Waits implements link.Upper.
func (u *upper) Waits(to *link.Session) bool {
	s := sessionOf(to)
	return s.leaving || s.ops.Waits() || s.mail.Waits()
}

// Owes implements link.Upper.
func (u *upper) Owes(to *link.Session) bool {
	s := sessionOf(to)
	return s.mail.Owes() || u.Operations.Owes(&s.ops)
}

// Inquire implements link.Upper.
func (u *upper) Inquire(to *link.Session) (asked bool, fault error) {
	return u.Operations.Inquire(&sessionOf(to).ops)
}

// Express implements link.Upper.
func (u *upper) Express(s *link.Session, records []byte) (n, results int) {
	return u.Operations.Express(&sessionOf(s).ops, records)
}

// Executed implements link.Upper.
func (u *upper) Executed(s *link.Session, records, results []byte, refused uint8) {
	u.Operations.Executed(&sessionOf(s).ops, records, results, refused)
}

// Served implements link.Upper.
func (u *upper) Served() { u.Operations.LookAtLocks() }

// Quiesced implements link.Upper: the peer's locks are released.
func (u *upper) Quiesced(gone *link.Session) { u.Operations.Release(&sessionOf(gone).ops) }

// Failed implements link.Upper: every call that waits for the peer gets the error.
func (u *upper) Failed(gone *link.Session) {
	s := sessionOf(gone)
	u.TakeFailure(gone)
	u.Operations.Fail(&s.ops)
	u.Messages.EndPeer(&s.mail, s.Failure())
}

// Sweep implements link.Upper.
func (u *upper) Sweep() {
	u.Messages.Sweep()
	u.Operations.Sweep()
}

// others is what the one-sided operations call: they share bundles with the rest.
type others Engine

// Request implements onesided.Others.
func (o *others) Request(from *link.Session, r wire.Record) mpierr.Class {
	s := sessionOf(from)
	switch r.Code {
	case wire.CodeBye:
		(*Engine)(o).takeBye(s, r.Data)
		return mpierr.Success
	case wire.CodeMessage, wire.CodeOffer:
		return o.countOutsider(o.TakeMessage(&s.mail, &r))
	case wire.CodeRest:
		return o.TakeRest(&s.mail, &r)
	case wire.CodeTaken:
		return o.TakeTaken(&s.mail, r.Window)
	case wire.CodeWithdrawn:
		return o.TakeWithdrawn(&s.mail, r.Window)
	case wire.CodeRevoke:
		return o.countOutsider(o.TakeRevoke(from, &r))
	case wire.CodeGone:
		return o.TakeGone(from, &r)
	}
	o.Stats.Faults[wire.BadRecord]++ // an answer that came as a request
	return mpierr.Intern
}

// countOutsider counts a request of a rank that is not in the group of a context.
func (o *others) countOutsider(class mpierr.Class) mpierr.Class {
	if class == mpierr.Comm {
		o.Stats.Outsiders++
	}
	return class
}

// Response implements onesided.Others.
func (o *others) Response(s *link.Session, r wire.Record) bool {
	return r.Code == wire.CodeCredit && o.TakeCredit(&sessionOf(s).mail, &r)
}

// Offered implements onesided.Others.
func (o *others) Offered(s *link.Session, id uint32) (data []byte, ok bool) {
	return o.Messages.Offered(&sessionOf(s).mail, id)
}

// fetch is message.Config.Get.
func (e *Engine) fetch(from *link.Session, offer uint32, into []byte, r *message.Receive) {
	e.Fetch(&sessionOf(from).ops, offer, into, r)
}

// Fetched implements onesided.Others.
func (o *others) Fetched(s *link.Session, offer uint32, what any, err *mpierr.Error) {
	o.Got(what.(*message.Receive), &sessionOf(s).mail, offer, err, err != nil && err.Err == errEvicted)
}
