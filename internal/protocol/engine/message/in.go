package message

import (
	"errors"
	"slices"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
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
func (x *Messages) PostReceive(r *Receive) {
	if !x.tryReceive(r) {
		x.addPosted(r)
		x.feed(r)
	}
}

// TryReceive is PostReceive for a receive or probe that does not wait: it reports
// whether r is met.
func (x *Messages) TryReceive(r *Receive) bool {
	if x.tryReceive(r) {
		return true
	}
	x.match.probed = true // who asks again and again waits too
	x.sweepSoon()
	x.feed(r)
	return false
}

func (x *Messages) tryReceive(r *Receive) bool {
	if i := x.match.find(r); i >= 0 {
		if r.Probe {
			r.found(x.match.arrivals.At(i))
			r.end(nil)
			return true
		}
		a := x.match.remove(i)
		x.accept(r, a)
		x.paid(a)
		return r.Matched()
	}
	if failed, broken := x.cfg.Members.Revoked(r.Context); broken {
		x.dropArrivals(r.Context, false)
		r.end(brokenError(failed))
		return true
	}
	if x.freed.known[r.Context] {
		r.end(freedError())
		return true
	}
	if err := x.noSender(r); err != nil {
		r.end(err)
		return true
	}
	return false
}

// WithdrawReceive ends a receive that has no message yet, and reports whether it did: a
// receive that has one goes on until it is met, which the sender's death ends too.
func (x *Messages) WithdrawReceive(r *Receive) bool {
	i := slices.Index(x.match.posted.All(), r)
	if i < 0 {
		return false
	}
	x.removePosted(i)
	r.end(nil)
	return true
}

// accept lets r have message a.
func (x *Messages) accept(r *Receive, a *arrival) {
	r.found(a)
	if a.length > len(r.Buffer) {
		r.err = &mpierr.Error{Op: "recv", Class: mpierr.Truncate, Rank: a.from, Err: errTruncated}
	}
	n := min(a.length, len(r.Buffer))
	switch {
	case a.offer != 0 && (x.left(a.session) != nil || a.session.Failure() != nil):
		if r.err = x.left(a.session); r.err == nil {
			r.err = a.session.Failure()
		}
	case a.own != nil:
		copy(r.Buffer, a.own.Data)
		a.own.end(nil)
	case a.offer == 0:
		copy(r.Buffer, a.data)
		if a.coming() {
			x.restTo(a.session, r)
			return
		}
	case n == 0:
		x.tellTaken(a.session, a.offer)
	default:
		r.phase = receivePulling
		x.cfg.Get(a.session.Session, a.offer, r.Buffer[:n], r)
		return
	}
	r.end(nil)
}

// Got ends a receive whose data has come from s, or will not come. evicted says that
// nobody wants the data any more, because the memory of the receive goes.
func (x *Messages) Got(r *Receive, s *Peer, offer uint32, err *mpierr.Error, evicted bool) {
	switch failed, broken := x.cfg.Members.Revoked(r.Context); {
	case err == nil || evicted && x.left(s) == nil && s.Failure() == nil:
		x.tellTaken(s, offer)
	case broken:
		err = brokenError(failed)
	case err.Class != mpierr.ProcFailed:
		err = brokenError(s.Rank()) // it is to say so: nothing else ends an offer before it is taken
	}
	r.end(err)
}

// tellTaken has the sender told that its message is here, or will not be asked for.
func (x *Messages) tellTaken(s *Peer, offer uint32) {
	s.news = append(s.news, news{wire.CodeTaken, offer})
	s.MarkDirty()
}

// TakeWithdrawn takes in that s has given up an offer. A receive that has matched it gets it
// all the same: what came after it may have gone to later receives.
func (x *Messages) TakeWithdrawn(s *Peer, offer uint32) mpierr.Class {
	if offer < Offers {
		return mpierr.Arg
	}
	i := slices.IndexFunc(x.match.arrivals.All(), func(a *arrival) bool { return a.session == s && a.offer == offer })
	if i >= 0 {
		x.paid(x.match.remove(i))
		x.tellTaken(s, offer)
	}
	return mpierr.Success
}

// TakeMessage takes in a message, or the offer of one. The class is Comm if s is not in
// the group of its context.
func (x *Messages) TakeMessage(s *Peer, r *wire.Record) mpierr.Class {
	a := arrival{from: s.Rank(), session: s, cost: wire.MessageCost(len(r.Data))}
	if r.Code == wire.CodeOffer {
		o, ok := r.Offer()
		if !ok || int64(o.Length) <= 0 || o.ID < Offers {
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
	if l.SpentHere+uint64(a.cost) > l.Granted {
		x.counts.Overdrawn++
		return mpierr.NoMem
	}
	l.SpentHere += uint64(a.cost)
	if _, broken := x.cfg.Members.Revoked(a.context); broken {
		x.paid(&a)
		return mpierr.Success
	}
	match, hungry := x.deliver(&a)
	if match != nil {
		x.accept(match, &a)
		x.paid(&a)
		return mpierr.Success
	}
	switch {
	case x.freed.known[a.context]:
		x.drop(&a)
		return mpierr.Success
	case x.cfg.Members.Outside(a.context, s.Rank()): // no receive will ever match it
		x.drop(&a)
		return mpierr.Comm
	}
	x.match.keep(&a)
	x.counts.Unexpected++
	x.allow(s, l, hungry)
	return mpierr.Success
}

// A sender's credit is a total: what all its messages have cost may reach what the
// receiver has granted. It is granted anew as messages find their receives, so that
// those without one take no more than a window. A receiver that waits for a message
// which a sender out of credit may still have grants more, up to a limit for all
// senders: otherwise the two would wait for each other.

// paid gives the sender of a, which needs no room any more, its credit back.
func (x *Messages) paid(a *arrival) {
	if s := a.session; s != nil {
		l := &s.lanes[laneOf(a.tag)]
		l.PaidHere += uint64(a.cost)
		x.allow(s, l, false)
	}
	if m := &x.match; m.starved && m.bytes+wire.MessageWindow <= x.cfg.MaxUnexpected {
		m.starved = false
		for _, r := range m.posted.All() {
			x.feed(r)
		}
	}
}

// allow lets s send on in one of its lanes, if that is worth telling. hungry says that
// somebody waits for a message of it that is not among those here.
func (x *Messages) allow(s *Peer, l *lane, hungry bool) {
	want := l.PaidHere + wire.MessageWindow
	if more := l.SpentHere + wire.MessageWindow/2; hungry && more > want {
		if x.match.bytes+wire.MessageWindow/2 <= x.cfg.MaxUnexpected {
			want = more
		} else {
			x.match.starved = true
		}
	}
	if want >= l.Granted+wire.MessageWindow/4 {
		l.Granted, l.untold = want, true
		s.MarkDirty()
	}
}

// feed sees to it that whoever may send what r waits for has credit to.
func (x *Messages) feed(r *Receive) {
	if x.match.bytes < wire.MessageWindow/4 {
		return
	}
	for rank := range x.cfg.Size { // not the map: the same calls give the same frames
		if r.Source != AnySource && r.Source != rank {
			continue
		}
		if s := x.peer(rank); s != nil && !s.Dead() {
			if l := &s.lanes[laneOf(r.Tag)]; l.SpentHere > l.PaidHere {
				x.allow(s, l, true)
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

// TellNews tells s what has become of offers, and its credit.
func (x *Messages) TellNews(s *Peer) {
	told := 0
	for _, n := range s.news {
		i := s.Room(link.Request, 0)
		if i == link.None {
			break
		}
		x.link.Append(i, &wire.Record{Code: n.code, Window: n.offer}, 0)
		if n.code == wire.CodeWithdrawn {
			x.link.Mark(i, wire.FlagOrdered) // after the offer
		}
		told++
	}
	s.news = slices.Delete(s.news, 0, told)
	stalled := len(s.news) > 0
	for i := range s.lanes {
		if l := &s.lanes[i]; l.untold {
			r := wire.Credit{Kind: uint32(i), Total: l.Granted}.Record()
			l.untold = !x.respond(s, &r)
			stalled = stalled || l.untold
		}
	}
	if stalled {
		s.Stall()
	}
}

// respond adds a record that answers nothing to the bundle of responses.
func (x *Messages) respond(s *Peer, r *wire.Record) bool {
	i, _ := s.Reserve(r, 0)
	if i == link.None {
		return false
	}
	x.link.Commit(i, 0)
	return true
}

// EndPeer ends what needs s, which is dead or has left: receives from it, and what is
// being sent to it. Messages that it has sent whole can still be received. A receive of
// a message that it has only offered learns that the message is lost.
func (x *Messages) EndPeer(s *Peer, why *mpierr.Error) {
	x.endPosted(func(r *Receive) *mpierr.Error {
		switch {
		case r.Source == s.Rank():
			return why
		case r.needs(s.Rank()):
			return x.noSender(r)
		}
		return nil
	})
	x.endSends(func(p *Sending) *mpierr.Error {
		if p.To == s || p.Collective && s.Failure() != nil && isMember(p.Members, s.Rank()) {
			return why
		}
		return nil
	})
	if s.rest.missing > 0 {
		x.endRest(s, why)
	}
	s.news, s.swept = nil, false
}

// Break ends what uses a context that was revoked. Messages that are here
// whole can be received until a receive finds none.
func (x *Messages) Break(context uint32, failed int) {
	err, waited := brokenError(failed), false
	x.endPosted(func(r *Receive) *mpierr.Error {
		if r.Context == context {
			waited = true
			return err
		}
		return nil
	})
	x.endSends(func(p *Sending) *mpierr.Error {
		if p.Context == context {
			return err
		}
		return nil
	})
	x.dropArrivals(context, !waited)
}

// dropArrivals forgets the messages of a context, or only those that were offered.
func (x *Messages) dropArrivals(context uint32, offered bool) {
	for i := 0; i < x.match.arrivals.Len(); {
		if a := x.match.arrivals.At(i); a.context == context && (!offered || a.offer != 0) {
			x.paid(x.match.remove(i))
			continue
		}
		i++
	}
}

func brokenError(failed int) *mpierr.Error {
	return &mpierr.Error{Op: "message", Class: mpierr.ProcFailed, Rank: failed, Err: errBroken}
}
