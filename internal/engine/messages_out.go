package engine

import (
	"slices"

	"github.com/xdprma/xdprma/internal/link"
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/wire"
)

// Sending is a message on its way out. The caller keeps it until Met.
type Sending struct {
	Session    *Session // nil: this rank
	Context    uint32
	Tag        int
	Members    []int  // those of the communicator, of a collective; nil: all ranks of the job
	Collective bool   // the death of any member ends it
	Data       []byte // must not move or be changed until Met

	phase sendPhase
	id    uint32 // of an offer
	err   *mpierr.Error
}

type sendPhase uint8

const (
	sendIdle    sendPhase = iota
	sendQueued            // waits for credit, for room, or for those before it
	sendOffered           // the receiver has been told, or will be
	sendDone
)

// offered marks the ids of offers, which stand where those of windows do.
const offered = 1 << 31

// maxWhole is the length of the longest message that is sent, not offered: it is far
// below the credit, and fits the frames that a session may always have.
const maxWhole = wire.MessageWindow / 8

// Met reports whether the data may be changed: the message has been handed over to
// be sent, or the receiver has it.
func (p *Sending) Met() bool { return p.phase == sendDone }

// Err returns why the message was not sent, or nil.
func (p *Sending) Err() error {
	if p.err == nil {
		return nil
	}
	return p.err
}

func (p *Sending) end(err *mpierr.Error) {
	p.phase = sendDone
	p.err = err
}

// PostSend begins p. Messages to one rank leave in the order of these calls.
func (e *Engine) PostSend(now int64, p *Sending) {
	e.Now = now
	s := p.Session
	failed, broken := e.Revoked(p.Context)
	switch {
	case broken:
		p.end(brokenError(failed))
	case s == nil:
		e.sendOwn(p)
	case s.Dead():
		p.end(s.Failure())
	case s.Left() != nil:
		p.end(s.Left())
	default:
		if p.Collective {
			if err := e.Culprit(p.Members); err != nil {
				p.end(err)
				return
			}
		}
		s.Watch(1) // until it is met
		p.phase = sendQueued
		l := &s.lanes[laneOf(p.Tag)]
		if l.sending.join(p); l.sending.len() == 1 {
			e.issueLane(s, l)
		}
		if p.phase != sendDone {
			s.Await()
			if p.Collective {
				e.sweepSoon()
			}
		}
	}
}

// sendsForMany reports whether a message of a collective has not been received.
func (e *Engine) sendsForMany() bool {
	for _, p := range e.offers {
		if p.Collective {
			return true
		}
	}
	for _, s := range e.Active() {
		if !sessionOf(s).lanes[laneCollective].sending.empty() {
			return true
		}
	}
	return false
}

// sendOwn sends a message to this rank itself.
func (e *Engine) sendOwn(p *Sending) {
	a := arrival{context: p.Context, tag: p.Tag, from: e.cfg.Rank, length: len(p.Data), own: p, cost: wire.MessageCost(0)}
	match, _ := e.deliver(&a)
	if match != nil {
		e.accept(match, &a)
		return
	}
	if cost := wire.MessageCost(len(p.Data)); len(p.Data) <= maxWhole && e.match.ownBytes+cost <= wire.MessageWindow {
		a.own, a.data, a.cost = nil, p.Data, cost
		p.end(nil)
	} else {
		p.phase = sendOffered
	}
	e.match.keep(&a)
}

// issueSends sends the messages to s that wait, as far as there is credit and room.
func (e *Engine) issueSends(s *Session) {
	for i := range s.lanes {
		e.issueLane(s, &s.lanes[i])
	}
}

func (e *Engine) issueLane(s *Session, l *lane) {
	for !l.sending.empty() {
		if !e.issueSend(s, l, l.sending.head()) {
			return
		}
		l.sending.leave(0)
	}
}

func (e *Engine) issueSend(s *Session, l *lane, p *Sending) bool {
	n := len(p.Data)
	most := (s.MaxPayload() - wire.HeaderLen - wire.RecordLen) &^ 7 // of it in a frame
	whole := n <= maxWhole
	if whole && n > most {
		s.CloseBundle(link.Request) // which may take room in the queue
		whole = s.MayOpen(link.Request, int32((n+most-1)/most))
	}
	if !whole {
		return e.issueOffer(s, l, p)
	}
	first := min(n, most)
	i := e.spend(s, l, n, first)
	if i == link.None {
		return false
	}
	r := wire.Message{Context: p.Context, Tag: uint32(p.Tag), Follow: uint64(n - first)}.Record()
	copy(e.appendOrdered(i, &r, first), p.Data)
	for at := first; at < n; at += most {
		data := p.Data[at:min(at+most, n)]
		i = s.Room(link.Request, len(data)) // there is: see mayOpen
		copy(e.appendOrdered(i, &wire.Record{Code: wire.CodeRest}, len(data)), data)
	}
	s.Watch(-1)
	p.end(nil)
	return true
}

// issueOffer offers the message p, if there are credit and room.
func (e *Engine) issueOffer(s *Session, l *lane, p *Sending) bool {
	i := e.spend(s, l, wire.OfferLen, wire.OfferLen)
	if i == link.None {
		return false
	}
	e.offerIDs(p)
	o := wire.Offer{Context: p.Context, Tag: uint32(p.Tag), Length: uint64(len(p.Data)), ID: p.id}
	r := o.Record()
	o.Put(e.appendOrdered(i, &r, wire.OfferLen))
	p.phase = sendOffered
	return true
}

// spend takes credit for a message of n bytes, and returns a bundle with room for the
// first of them; none if there is no credit, or no room.
func (e *Engine) spend(s *Session, l *lane, n, first int) int32 {
	cost := uint64(wire.MessageCost(n))
	if l.spent+cost > l.credit {
		return link.None // what brings credit has the session served
	}
	i := s.Room(link.Request, first)
	if i == link.None {
		s.Stall()
		return link.None
	}
	l.spent += cost
	s.MarkDirty()
	return i
}

// appendOrdered is appendRecord for what takes effect in the order sent.
func (e *Engine) appendOrdered(i int32, r *wire.Record, n int) []byte {
	e.Mark(i, wire.FlagOrdered)
	return e.Append(i, r, n)
}

// offerIDs names p among the offers of this rank.
func (e *Engine) offerIDs(p *Sending) {
	for p.id < offered || e.offers[p.id] != nil {
		e.lastOffer++
		p.id = offered | e.lastOffer
	}
	e.offers[p.id] = p
}

// applyPull answers a get of a part of what this rank has offered to the peer. Nothing
// else can be done to an offer, and nothing by others.
func (e *Engine) applyPull(b *link.Bundle, r *wire.Record) mpierr.Class {
	p := e.offers[r.Window]
	if p == nil || p.Session != sessionOf(b.Session) || r.Code != wire.CodeGet || r.Flags&wire.FlagTyped != 0 {
		return mpierr.Win
	}
	if len(r.Data) != wire.PartLen {
		return mpierr.Intern
	}
	offset, want := wire.Part(r.Data)
	if want > wire.MaxPart {
		return mpierr.Size
	}
	if n := uint64(len(p.Data)); r.Disp > n || uint64(want) > n-r.Disp {
		return mpierr.RMARange
	}
	return e.answerGet(b, r.Token, offset, p.Data[r.Disp:][:want])
}

// takeTaken ends an offer: s has the message, or does not want more of it.
func (e *Engine) takeTaken(s *Session, id uint32) mpierr.Class {
	p := e.offers[id]
	if p == nil || p.Session != s {
		return mpierr.Arg
	}
	e.endOffer(p, nil)
	return mpierr.Success
}

func (e *Engine) endOffer(p *Sending, err *mpierr.Error) {
	delete(e.offers, p.id)
	p.Session.Watch(-1)
	p.end(err)
}

// takeCredit takes in what s grants this rank, and reports whether it makes sense.
func (e *Engine) takeCredit(s *Session, r *wire.Record) bool {
	c := r.Credit()
	if c.Kind >= numLanes {
		return false
	}
	if l := &s.lanes[c.Kind]; c.Total > l.credit {
		l.credit = c.Total
		s.MarkDirty()
	}
	return true
}

// endSends ends the messages that why gives an error for and that are not with
// their receiver.
func (e *Engine) endSends(why func(*Sending) *mpierr.Error) {
	for _, p := range e.offers {
		if err := why(p); err != nil {
			e.endOffer(p, err)
		}
	}
	for rank := range e.cfg.Size {
		s := e.Session(rank)
		if s == nil {
			continue
		}
		for i := range s.lanes {
			s.lanes[i].sending.drop(func(p *Sending) bool {
				err := why(p)
				if err != nil {
					s.Watch(-1)
					p.end(err)
				}
				return err != nil
			})
		}
	}
	for i := 0; i < e.match.arrivals.len(); i++ {
		if p := e.match.arrivals.at(i).own; p != nil {
			if err := why(p); err != nil {
				e.match.remove(i)
				p.end(err)
				i--
			}
		}
	}
}

// Abandon ends p for its caller, who may change the data from then on, and reports
// whether it was not met before. The message is withdrawn: nobody receives it, unless a
// receive has matched it. So until the receiver has answered, an offer is kept as it
// was, with spare, a copy of the data.
func (e *Engine) Abandon(now int64, p *Sending, spare []byte) bool {
	e.Now = now
	s := p.Session
	switch {
	case p.phase == sendQueued:
		s.lanes[laneOf(p.Tag)].sending.drop(func(q *Sending) bool { return q == p })
		s.Watch(-1)
	case p.phase == sendOffered && s == nil:
		i := slices.IndexFunc(e.match.arrivals.all(), func(a *arrival) bool { return a.own == p })
		e.paid(e.match.remove(i))
	case p.phase == sendOffered:
		c := &Sending{Session: s, Context: p.Context, Tag: p.Tag, Data: spare, phase: sendOffered, id: p.id}
		e.offers[c.id] = c
		s.news = append(s.news, news{wire.CodeWithdrawn, c.id})
		s.MarkDirty()
	default:
		return false
	}
	p.end(nil)
	return true
}
