package link

import (
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// served is who has which of the places in Config.Express, which this rank shares with its program.
type served struct {
	vacant    []int32
	holders   []*Session          // by place, nil where it is vacant
	quiescing map[uint64]*Session // dead, and perhaps still in the program, by id
}

// newServed returns places of which all are vacant.
func newServed(places int) served {
	v := served{holders: make([]*Session, places), quiescing: map[uint64]*Session{}}
	for i := range int32(places) {
		v.vacant = append(v.vacant, i)
	}
	return v
}

// take takes a place, if one is left, or returns None.
func (v *served) take() int32 {
	n := len(v.vacant)
	if n == 0 {
		return None
	}
	place := v.vacant[n-1]
	v.vacant = v.vacant[:n-1]
	return place
}

// giveBack makes a place that take gave out vacant.
func (v *served) giveBack(place int32) {
	if place != None {
		v.vacant = append(v.vacant, place)
	}
}

// isQuiescing reports whether the session with an id has failed, and something that it has sent may
// still be in the program.
func (v *served) isQuiescing(id uint64) bool { return v.quiescing[id] != nil }

// serving is what a target keeps about the exchanges of a peer.
type serving struct {
	place  int32 // in Config.Express, or None
	newest express.Newest
}

// Opened is a session that has become valid.
type Opened struct {
	ID   uint64
	Slot int32 // its place in Config.Express, or None
}

// name gives a new session its id, and a place in the tables, if one is left: those that the
// answer to the peer's hello names, if there is one.
func (l *Link) name(s *Session) {
	a := l.answers[s.rank]
	if b := l.answering[s.rank]; a == nil && b != nil && b.localID != 0 && !b.taken {
		a = b
	}
	if a != nil {
		a.taken = true
		s.localID, s.serving.place = a.localID, a.place
	} else {
		s.localID, s.serving.place = l.newID(), l.served.take()
	}
	if s.serving.place != None {
		l.served.holders[s.serving.place] = s
	}
}

// tier returns how long the express frames may be that are served at a place in the tables: 0 if
// none.
func tier(place int32) uint32 {
	if place == None {
		return 0
	}
	return express.MaxPayload
}

// openPlace lets the program serve s, whose way is known now.
func (l *Link) openPlace(s *Session) {
	if s.serving.place == None {
		return
	}
	slot := express.Slot{Session: s.localID, PeerSession: s.remoteID, Rank: uint32(s.rank), Life: s.peer}
	if s.codes != nil {
		slot.Keys = &express.Keys{Requests: s.codes.Requests.Received, Answers: s.codes.Answers.Sent, Answered: s.codes.Answers.Received}
	}
	if l.cfg.Peer != nil {
		slot.Peer, slot.Local = l.cfg.Peer(s.path)
	}
	l.cfg.Express.OpenSlot(s.Slot(), slot)
}

// closePlace ends what the program does for s. A frame may be on its way through the
// program, so the layer above hears that all is over only by Quiesced.
func (l *Link) closePlace(s *Session) {
	if s.serving.place == None {
		l.cfg.Upper.Quiesced(s)
		return
	}
	l.cfg.Express.CloseSlot(s.Slot())
	l.served.quiescing[s.localID] = s
	l.toQuiesce = append(l.toQuiesce, s.localID)
}

// Quiesced takes in that no frame of a session of Announcements' quiescing is on its way
// through the program any more.
func (l *Link) Quiesced(id uint64) {
	v := &l.served
	s := v.quiescing[id]
	if s == nil {
		return
	}
	delete(v.quiescing, id)
	l.cfg.Upper.Quiesced(s)
	l.cfg.Express.WipeSlot(s.Slot())
	v.holders[s.serving.place] = nil
	v.giveBack(s.serving.place)
}

// EachServed calls f with each session that has a place in Config.Express.
func (l *Link) EachServed(f func(s *Session, slot int)) {
	for i, s := range l.served.holders {
		if s != nil {
			f(s, i)
		}
	}
}

// place returns the place in Config.Express that s has, or None.
func (s *Session) place() int32 { return s.serving.place }

// Slot returns the place in Config.Express that s has; negative: it has none.
func (s *Session) Slot() int { return int(s.serving.place) }

// Quiescing reports whether s has failed and something that it has sent may still be in the
// program.
func (l *Link) Quiescing(s *Session) bool { return l.served.quiescing[s.localID] == s }

// receiveRequest takes in an express frame of s that requests something.
func (l *Link) receiveRequest(s *Session, h *express.Header, body []byte) {
	if s.serving.newest.Follows(h) {
		s.liveness.Heard(l.Now) // one that comes again says nothing of the peer
	}
	l.serve(s, h, body)
	l.cfg.Upper.Served()
}

// serve takes a request of s that the program has not executed as the bundle that it would
// have been, or answers again what is done. One that the program was interrupted at waits
// for a repetition that does not go round the program.
func (l *Link) serve(s *Session, h *express.Header, body []byte) {
	if s.serving.place == None {
		l.stats.ExpressDropped++
		return
	}
	if taken, applied := l.takeExchange(s, h, body); taken {
		l.stats.ExpressTaken++
		if applied { // the acknowledgement says so
			return
		}
	}
	if l.freeSlots == 0 {
		l.stats.ExpressDropped++ // it comes again
		return
	}
	i := l.allocSlot()
	n := l.cfg.Express.Answer(s.Slot(), l.cfg.Slab.Payload(i), h, true)
	if n == 0 {
		l.stats.ExpressDropped++
		l.freeSlot(i)
		return
	}
	l.stats.ExpressAnswered++
	l.outputOnce(i, n, s.path)
}

// takeExchange takes the request of an exchange as a bundle. It does nothing if it cannot.
func (l *Link) takeExchange(s *Session, h *express.Header, body []byte) (taken, applied bool) {
	records, ok := express.Records(body, h.Records)
	next := s.recv[Request].Next()
	if !ok || s.recv[Request].Check(next) != reliable.Fresh || !l.cfg.Express.Claim(s.Slot(), h.Exchange) {
		return false, false
	}
	b := wire.Header{Kind: wire.KindData, Sequence: next}
	if h.Ordered {
		b.Flags, b.Order = wire.FlagOrdered, s.orderSeen+1
	}
	if !l.takeRequest(s, &b, records) {
		l.cfg.Express.Unclaim(s.Slot(), h.Exchange)
		l.stats.ParkingFull++
		return false, false
	}
	l.cfg.Express.PublishTaken(s.Slot(), h.Exchange)
	l.stats.Bundles++
	s.acks.now = true // its sender waits
	s.MarkDirty()
	return true, s.recv[Request].Next() > next
}
