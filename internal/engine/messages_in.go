package engine

import (
	"errors"
	"slices"

	"github.com/xdprma/xdprma/internal/link"
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/wire"
)

// A message between two ranks that is short is sent, in one frame or in several; see rest.
// A longer one is offered: the receiver, once it knows where the message goes, gets it from the
// sender's memory as it would from a window, and tells the sender that it has it.
// A sender has credit for what its peer may have to keep; see allow.

var (
	errTruncated = errors.New("the message is longer than the buffer; a probe tells its length")
	errBroken    = errors.New("the communicator is broken: a member has failed, or given up a collective")
)

// PostReceive begins r: it matches the oldest message that has arrived for it, or
// waits for one. Receives that match the same message get it in the order posted.
// It fails at once, or later, if nobody is there to send what it waits for.
func (e *Engine) PostReceive(now int64, r *Receive) {
	e.Now = now
	if !e.tryReceive(r) {
		e.addPosted(r)
		e.feed(r)
	}
}

// TryReceive is PostReceive for a receive or probe that does not wait: it reports
// whether r is met.
func (e *Engine) TryReceive(now int64, r *Receive) bool {
	e.Now = now
	if e.tryReceive(r) {
		return true
	}
	e.match.probed = true // who asks again and again waits too
	e.sweepSoon()
	e.feed(r)
	return false
}

func (e *Engine) tryReceive(r *Receive) bool {
	if i := e.match.find(r); i >= 0 {
		if r.Probe {
			r.found(e.match.arrivals.at(i))
			r.end(nil)
			return true
		}
		a := e.match.remove(i)
		e.accept(r, a)
		e.paid(a)
		return r.phase == receiveDone || r.phase == receivePulling
	}
	if failed, broken := e.Revoked(r.Context); broken {
		e.dropArrivals(r.Context, false)
		r.end(brokenError(failed))
		return true
	}
	if e.freed.known[r.Context] {
		r.end(freedError())
		return true
	}
	if err := e.noSender(r); err != nil {
		r.end(err)
		return true
	}
	return false
}

// WithdrawReceive ends a receive that has no message yet, and reports whether it did: a
// receive that has one goes on until it is met, which the sender's death ends too.
func (e *Engine) WithdrawReceive(now int64, r *Receive) bool {
	e.Now = now
	i := slices.Index(e.match.posted.all(), r)
	if i < 0 {
		return false
	}
	e.removePosted(i)
	r.end(nil)
	return true
}

// accept lets r have message a.
func (e *Engine) accept(r *Receive, a *arrival) {
	r.found(a)
	if a.length > len(r.Buf) {
		r.err = &mpierr.Error{Op: "recv", Class: mpierr.Truncate, Rank: a.from, Err: errTruncated}
	}
	n := min(a.length, len(r.Buf))
	switch {
	case a.offer != 0 && (a.session.Left() != nil || a.session.Failure() != nil):
		if r.err = a.session.Left(); r.err == nil {
			r.err = a.session.Failure()
		}
	case a.own != nil:
		copy(r.Buf, a.own.Data)
		a.own.end(nil)
	case a.offer == 0:
		copy(r.Buf, a.data)
		if a.coming() {
			e.restTo(a.session, r)
			return
		}
	case n == 0:
		e.tellTaken(a.session, a.offer)
	default:
		r.phase, r.access, r.pull = receivePulling, e.openPull(a.session, a.offer), Request{receive: r}
		e.deferCall(&Call{Access: r.access, Code: wire.CodeGet, Result: r.Buf[:n], Request: &r.pull})
		a.session.MarkDirty()
		return
	}
	r.end(nil)
}

// pulled ends a receive whose data has come, or will not come.
func (e *Engine) pulled(r *Receive) {
	s, offer, err := r.access.session, r.access.window, r.pull.err
	e.closePull(r.access)
	r.access = nil
	switch failed, broken := e.Revoked(r.Context); {
	case err == nil || err.Err == errEvicted && s.Left() == nil && s.Failure() == nil:
		e.tellTaken(s, offer)
	case broken:
		err = brokenError(failed)
	case err.Class != mpierr.ProcFailed:
		err = brokenError(s.Rank()) // it is to say so: nothing else ends an offer before it is taken
	}
	r.end(err)
}

// openPull returns an access to what s has offered, for one receive.
func (e *Engine) openPull(s *Session, offer uint32) *Access {
	var a *Access
	if n := len(e.match.pulls); n > 0 {
		a = e.match.pulls[n-1]
		e.match.pulls = e.match.pulls[:n-1]
	} else {
		a = &Access{}
	}
	a.engine, a.session, a.window = e, s, offer
	return a
}

// closePull forgets an access to an offer, on which nothing is outstanding.
func (e *Engine) closePull(a *Access) {
	if len(e.match.pulls) < keptArrivals {
		*a = Access{queue: a.queue}
		e.match.pulls = append(e.match.pulls, a)
	}
}

// tellTaken has the sender told that its message is here, or will not be asked for.
func (e *Engine) tellTaken(s *Session, offer uint32) {
	s.news = append(s.news, news{wire.CodeTaken, offer})
	s.MarkDirty()
}

// takeWithdrawn takes in that s has given up an offer. A receive that has matched it gets it
// all the same: what came after it may have gone to later receives.
func (e *Engine) takeWithdrawn(s *Session, offer uint32) mpierr.Class {
	if offer < offered {
		return mpierr.Arg
	}
	i := slices.IndexFunc(e.match.arrivals.all(), func(a *arrival) bool { return a.session == s && a.offer == offer })
	if i >= 0 {
		e.paid(e.match.remove(i))
		e.tellTaken(s, offer)
	}
	return mpierr.Success
}

// takeMessage takes in a message, or the offer of one.
func (e *Engine) takeMessage(s *Session, r *wire.Record) mpierr.Class {
	a := arrival{from: s.Rank(), session: s, cost: wire.MessageCost(len(r.Data))}
	if r.Code == wire.CodeOffer {
		o, ok := r.Offer()
		if !ok || int64(o.Length) <= 0 || o.ID < offered {
			return mpierr.Intern
		}
		a.context, a.tag, a.length, a.offer = o.Context, int(o.Tag), int(o.Length), o.ID
	} else {
		m := r.Message()
		a.context, a.tag, a.length, a.data = m.Context, int(m.Tag), len(r.Data), r.Data
		if !s.rest.begin(&a, m.Follow) {
			return mpierr.Intern
		}
	}
	l := &s.lanes[laneOf(a.tag)]
	if l.spentHere+uint64(a.cost) > l.granted {
		e.Stats.Overdrawn++
		return mpierr.NoMem
	}
	l.spentHere += uint64(a.cost)
	if _, broken := e.Revoked(a.context); broken {
		e.paid(&a)
		return mpierr.Success
	}
	match, hungry := e.deliver(&a)
	if match != nil {
		e.accept(match, &a)
		e.paid(&a)
		return mpierr.Success
	}
	switch {
	case e.freed.known[a.context]:
		e.drop(&a)
		return mpierr.Success
	case e.Outside(a.context, s.Rank()): // no receive will ever match it
		e.drop(&a)
		e.Stats.Outsiders++
		return mpierr.Comm
	}
	e.match.keep(&a)
	e.Stats.Unexpected++
	e.allow(s, l, hungry)
	return mpierr.Success
}

// A sender's credit is a total: what all its messages have cost may reach what the
// receiver has granted. It is granted anew as messages find their receives, so that
// those without one take no more than a window. A receiver that waits for a message
// which a sender out of credit may still have grants more, up to a limit for all
// senders: otherwise the two would wait for each other.

// paid gives the sender of a, which needs no room any more, its credit back.
func (e *Engine) paid(a *arrival) {
	if s := a.session; s != nil {
		l := &s.lanes[laneOf(a.tag)]
		l.paidHere += uint64(a.cost)
		e.allow(s, l, false)
	}
	if m := &e.match; m.starved && m.bytes+wire.MessageWindow <= e.cfg.MaxUnexpected {
		m.starved = false
		for _, r := range m.posted.all() {
			e.feed(r)
		}
	}
}

// allow lets s send on in one of its lanes, if that is worth telling. hungry says that
// somebody waits for a message of it that is not among those here.
func (e *Engine) allow(s *Session, l *lane, hungry bool) {
	want := l.paidHere + wire.MessageWindow
	if more := l.spentHere + wire.MessageWindow/2; hungry && more > want {
		if e.match.bytes+wire.MessageWindow/2 <= e.cfg.MaxUnexpected {
			want = more
		} else {
			e.match.starved = true
		}
	}
	if want >= l.granted+wire.MessageWindow/4 {
		l.granted, l.untold = want, true
		s.MarkDirty()
	}
}

// feed sees to it that whoever may send what r waits for has credit to.
func (e *Engine) feed(r *Receive) {
	if e.match.bytes < wire.MessageWindow/4 {
		return
	}
	for rank := range e.cfg.Size { // not the map: the same calls give the same frames
		if r.Source != AnySource && r.Source != rank {
			continue
		}
		if s := e.Session(rank); s != nil && !s.Dead() {
			if l := &s.lanes[laneOf(r.Tag)]; l.spentHere > l.paidHere {
				e.allow(s, l, true)
			}
		}
	}
}

// news is what a rank tells a peer about an offer of either: that it was taken, or is
// withdrawn.
type news struct {
	code  wire.Code
	offer uint32
}

// tellNews tells s what has become of offers, and its credit.
func (e *Engine) tellNews(s *Session) {
	told := 0
	for _, n := range s.news {
		i := s.Room(link.Request, 0)
		if i == link.None {
			break
		}
		e.Append(i, &wire.Record{Code: n.code, Window: n.offer}, 0)
		if n.code == wire.CodeWithdrawn {
			e.Mark(i, wire.FlagOrdered) // after the offer
		}
		told++
	}
	s.news = slices.Delete(s.news, 0, told)
	stalled := len(s.news) > 0
	for i := range s.lanes {
		if l := &s.lanes[i]; l.untold {
			r := wire.Credit{Kind: uint32(i), Total: l.granted}.Record()
			l.untold = !e.respond(s, &r)
			stalled = stalled || l.untold
		}
	}
	if stalled {
		s.Stall()
	}
}

// endMessages ends what needs s, which is dead or has left: receives from it, and
// what is being sent to it. What it has sent whole can still be received; of what it
// has offered, the receive that it is for learns that it is lost.
func (e *Engine) endMessages(s *Session, why *mpierr.Error) {
	e.endPosted(func(r *Receive) *mpierr.Error {
		switch {
		case r.Source == s.Rank():
			return why
		case r.needs(s.Rank()):
			return e.noSender(r)
		}
		return nil
	})
	e.endSends(func(p *Sending) *mpierr.Error {
		if p.Session == s || p.Collective && s.Failure() != nil && isMember(p.Members, s.Rank()) {
			return why
		}
		return nil
	})
	if s.rest.missing > 0 {
		e.endRest(s, why)
	}
	s.news, s.swept = nil, false
}

// breakMessages ends what uses a context that was revoked. Messages that are here
// whole can be received until a receive finds none.
func (e *Engine) breakMessages(context uint32, failed int) {
	err, waited := brokenError(failed), false
	e.endPosted(func(r *Receive) *mpierr.Error {
		if r.Context == context {
			waited = true
			return err
		}
		return nil
	})
	e.endSends(func(p *Sending) *mpierr.Error {
		if p.Context == context {
			return err
		}
		return nil
	})
	e.dropArrivals(context, !waited)
}

// dropArrivals forgets the messages of a context, or only those that were offered.
func (e *Engine) dropArrivals(context uint32, offered bool) {
	for i := 0; i < e.match.arrivals.len(); {
		if a := e.match.arrivals.at(i); a.context == context && (!offered || a.offer != 0) {
			e.paid(e.match.remove(i))
			continue
		}
		i++
	}
}

func brokenError(failed int) *mpierr.Error {
	return &mpierr.Error{Op: "message", Class: mpierr.ProcFailed, Rank: failed, Err: errBroken}
}
