package message

import (
	"slices"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// Sending is a message on its way out. The caller keeps it until Met.
type Sending struct {
	To         *Peer // nil: this rank
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

// Offers marks the ids of offers, which stand where those of windows do.
const Offers = 1 << 31

// MaxWhole is the length of the longest message that is sent, not offered: it is far
// below the credit, and fits the frames that a session may always have.
const MaxWhole = wire.MessageWindow / 8

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

// Offer returns how the receiver names p, if p was offered; or 0.
func (p *Sending) Offer() uint32 { return p.id }

func (p *Sending) end(err *mpierr.Error) {
	p.phase = sendDone
	p.err = err
}

// PostSend begins p. Messages to one rank leave in the order of these calls.
func (x *Messages) PostSend(p *Sending) {
	s := p.To
	failed, broken := x.cfg.Members.Revoked(p.Context)
	switch {
	case broken:
		p.end(brokenError(failed))
	case s == nil:
		x.sendOwn(p)
	case s.Dead():
		p.end(s.Failure())
	case x.left(s) != nil:
		p.end(x.left(s))
	default:
		if p.Collective {
			if err := x.cfg.Members.Culprit(p.Members); err != nil {
				p.end(err)
				return
			}
		}
		s.Watch(1) // until it is met
		p.phase = sendQueued
		l := &s.lanes[laneOf(p.Tag)]
		if l.sending.Join(p); l.sending.Len() == 1 {
			x.issueLane(s, l)
		}
		if p.phase != sendDone {
			s.Await()
			if p.Collective {
				x.sweepSoon()
			}
		}
	}
}

// sendsForMany reports whether a message of a collective has not been received.
func (x *Messages) sendsForMany() bool {
	for _, p := range x.offers {
		if p.Collective {
			return true
		}
	}
	for _, s := range x.link.Active() {
		if !x.cfg.Peer(s).lanes[laneCollective].sending.Empty() {
			return true
		}
	}
	return false
}

// sendOwn sends a message to this rank itself.
func (x *Messages) sendOwn(p *Sending) {
	a := arrival{context: p.Context, tag: p.Tag, from: x.cfg.Rank, length: len(p.Data), own: p, cost: wire.MessageCost(0)}
	match, _ := x.deliver(&a)
	if match != nil {
		x.accept(match, &a)
		return
	}
	if cost := wire.MessageCost(len(p.Data)); len(p.Data) <= MaxWhole && x.match.ownBytes+cost <= wire.MessageWindow {
		a.own, a.data, a.cost = nil, p.Data, cost
		p.end(nil)
	} else {
		p.phase = sendOffered
	}
	x.match.keep(&a)
}

// issueLane sends what waits in a lane. A message to a rank that has yet to join the job is
// not sent into a buffer: its sender could end, and the message with it.
func (x *Messages) issueLane(s *Peer, l *lane) {
	for s.HasPath() && !l.sending.Empty() {
		if !x.issueSend(s, l, l.sending.Head()) {
			return
		}
		l.sending.Leave(0)
	}
}

func (x *Messages) issueSend(s *Peer, l *lane, p *Sending) bool {
	n := len(p.Data)
	most := (s.MaxPayload() - wire.HeaderLen - wire.RecordLen) &^ 7 // of it in a frame
	whole := n <= MaxWhole
	if whole && n > most {
		s.CloseBundle(link.Request) // which may take room in the queue
		whole = s.MayOpen(link.Request, int32((n+most-1)/most))
	}
	if !whole {
		return x.issueOffer(s, l, p)
	}
	first := min(n, most)
	i := x.spend(s, l, n, first)
	if i == link.None {
		return false
	}
	r := wire.Message{Context: p.Context, Tag: uint32(p.Tag), Follow: uint64(n - first)}.Record()
	copy(x.appendOrdered(i, &r, first), p.Data)
	for at := first; at < n; at += most {
		data := p.Data[at:min(at+most, n)]
		i = s.Room(link.Request, len(data)) // there is: MayOpen has said so
		copy(x.appendOrdered(i, &wire.Record{Code: wire.CodeRest}, len(data)), data)
	}
	s.Watch(-1)
	p.end(nil)
	return true
}

// issueOffer offers the message p, if there are credit and room.
func (x *Messages) issueOffer(s *Peer, l *lane, p *Sending) bool {
	i := x.spend(s, l, wire.OfferLen, wire.OfferLen)
	if i == link.None {
		return false
	}
	x.offerIDs(p)
	o := wire.Offer{Context: p.Context, Tag: uint32(p.Tag), Length: uint64(len(p.Data)), ID: p.id}
	r := o.Record()
	o.Put(x.appendOrdered(i, &r, wire.OfferLen))
	p.phase = sendOffered
	return true
}

// spend takes credit for a message of n bytes, and returns a bundle with room for the
// first of them; none if there is no credit, or no room.
func (x *Messages) spend(s *Peer, l *lane, n, first int) int32 {
	cost := uint64(wire.MessageCost(n))
	if l.Spent+cost > l.Credit {
		return link.None // what brings credit has the session served
	}
	i := s.Room(link.Request, first)
	if i == link.None {
		s.Stall()
		return link.None
	}
	l.Spent += cost
	s.MarkDirty()
	return i
}

// appendOrdered is the link's Append for what takes effect in the order sent.
func (x *Messages) appendOrdered(i int32, r *wire.Record, n int) []byte {
	x.link.Mark(i, wire.FlagOrdered)
	return x.link.Append(i, r, n)
}

// offerIDs names p among the offers of this rank.
func (x *Messages) offerIDs(p *Sending) {
	for p.id < Offers || x.offers[p.id] != nil {
		x.lastOffer++
		p.id = Offers | x.lastOffer
	}
	x.offers[p.id] = p
}

// Offered returns the data of an offer to s.
func (x *Messages) Offered(s *Peer, id uint32) (data []byte, ok bool) {
	p := x.offers[id]
	if p == nil || p.To != s {
		return nil, false
	}
	return p.Data, true
}

// TakeTaken ends an offer: s has the message, or does not want more of it.
func (x *Messages) TakeTaken(s *Peer, id uint32) mpierr.Class {
	p := x.offers[id]
	if p == nil || p.To != s {
		return mpierr.Arg
	}
	x.endOffer(p, nil)
	return mpierr.Success
}

func (x *Messages) endOffer(p *Sending, err *mpierr.Error) {
	delete(x.offers, p.id)
	p.To.Watch(-1)
	p.end(err)
}

// TakeCredit takes in what s grants this rank, and reports whether it makes sense.
func (x *Messages) TakeCredit(s *Peer, r *wire.Record) bool {
	c := r.Credit()
	if c.Kind >= numLanes {
		return false
	}
	if l := &s.lanes[c.Kind]; c.Total > l.Credit {
		l.Credit = c.Total
		s.MarkDirty()
	}
	return true
}

// endSends ends the messages that why gives an error for and that are not with
// their receiver.
func (x *Messages) endSends(why func(*Sending) *mpierr.Error) {
	for _, p := range x.offers {
		if err := why(p); err != nil {
			x.endOffer(p, err)
		}
	}
	for rank := range x.cfg.Size {
		s := x.peer(rank)
		if s == nil {
			continue
		}
		for i := range s.lanes {
			s.lanes[i].sending.Drop(func(p *Sending) bool {
				err := why(p)
				if err != nil {
					s.Watch(-1)
					p.end(err)
				}
				return err != nil
			})
		}
	}
	for i := 0; i < x.match.arrivals.Len(); i++ {
		if p := x.match.arrivals.At(i).own; p != nil {
			if err := why(p); err != nil {
				x.match.remove(i)
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
func (x *Messages) Abandon(p *Sending, spare []byte) bool {
	s := p.To
	switch {
	case p.phase == sendQueued:
		s.lanes[laneOf(p.Tag)].sending.Drop(func(q *Sending) bool { return q == p })
		s.Watch(-1)
	case p.phase == sendOffered && s == nil:
		i := slices.IndexFunc(x.match.arrivals.All(), func(a *arrival) bool { return a.own == p })
		x.paid(x.match.remove(i))
	case p.phase == sendOffered:
		c := &Sending{To: s, Context: p.Context, Tag: p.Tag, Data: spare, phase: sendOffered, id: p.id}
		x.offers[c.id] = c
		s.news = append(s.news, news{wire.CodeWithdrawn, c.id})
		s.MarkDirty()
	default:
		return false
	}
	p.end(nil)
	return true
}
