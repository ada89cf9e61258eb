package link

import (
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// serving is what a target keeps about the exchanges of a peer.
type serving struct {
	table         int32  // place in the tables that this rank shares with its program, or None
	exchange, try uint64 // of the last request that was new
}

// Opened is a session that has become valid.
type Opened struct {
	ID   uint64
	Slot int32 // its place in Config.Express, or None
}

// NoExchanges is part of a layer above whose requests never are exchanges, and that holds
// nothing for a peer.
type NoExchanges struct{}

// Express implements Upper.
func (NoExchanges) Express(*Session, []byte) (n, results int) { return 0, 0 }

// Executed implements Upper.
func (NoExchanges) Executed(s *Session, records, results []byte, refused uint8) {}

// Served implements Upper.
func (NoExchanges) Served() {}

// Quiesced implements Upper.
func (NoExchanges) Quiesced(*Session) {}

// name gives a new session its id, and a place in the tables, if one is left: those that the
// answer to the peer's hello names, if there is one.
func (l *Link) name(s *Session) {
	a := l.answers[s.rank]
	if b := l.answering[s.rank]; a == nil && b != nil && b.localID != 0 && !b.taken {
		a = b
	}
	if a != nil {
		a.taken = true
		s.localID, s.serving.table = a.localID, a.table
	} else {
		s.localID, s.serving.table = l.newID(), l.takeTable()
	}
	if s.serving.table != None {
		l.served[s.serving.table] = s
	}
}

// takeTable takes a place in the tables, if one is left, or returns None.
func (l *Link) takeTable() int32 {
	n := len(l.freeTables)
	if n == 0 {
		return None
	}
	table := l.freeTables[n-1]
	l.freeTables = l.freeTables[:n-1]
	return table
}

// returnTable takes back a place in the tables that takeTable gave out.
func (l *Link) returnTable(table int32) {
	if table != None {
		l.freeTables = append(l.freeTables, table)
	}
}

// tier returns how long the express frames may be that are served at a place in the tables: 0 if
// none.
func tier(table int32) uint32 {
	if table == None {
		return 0
	}
	return express.MaxPayload
}

// openTable lets the program serve s, whose way is known now.
func (l *Link) openTable(s *Session) {
	if s.serving.table == None {
		return
	}
	slot := express.Slot{Session: s.localID, PeerSession: s.remoteID, Rank: uint32(s.rank), Life: s.peer}
	if s.codes != nil {
		slot.Keys = &express.Keys{Requests: s.codes.Requests.Received, Answers: s.codes.Answers.Sent}
	}
	if l.cfg.Peer != nil {
		slot.Peer, slot.Local = l.cfg.Peer(s.path)
	}
	l.cfg.Express.OpenSlot(int(s.serving.table), slot)
}

// closeTable ends what the program does for s. A frame may be on its way through the
// program, so the layer above hears that all is over only by Quiesced.
func (l *Link) closeTable(s *Session) {
	if s.serving.table == None {
		l.cfg.Upper.Quiesced(s)
		return
	}
	l.cfg.Express.CloseSlot(int(s.serving.table))
	l.quiescing[s.localID] = s
	l.toQuiesce = append(l.toQuiesce, s.localID)
}

// Quiesced takes in that no frame of a session of Announcements' quiescing is on its way
// through the program any more.
func (l *Link) Quiesced(id uint64) {
	s := l.quiescing[id]
	if s == nil {
		return
	}
	delete(l.quiescing, id)
	l.cfg.Upper.Quiesced(s)
	l.cfg.Express.WipeSlot(int(s.serving.table))
	l.served[s.serving.table] = nil
	l.freeTables = append(l.freeTables, s.serving.table)
}

// EachServed calls f with each session that has a place in Config.Express.
func (l *Link) EachServed(f func(s *Session, slot int)) {
	for i, s := range l.served {
		if s != nil {
			f(s, i)
		}
	}
}

// Slot returns the place in Config.Express that s has; negative: it has none.
func (s *Session) Slot() int { return int(s.serving.table) }

// Quiescing reports whether s has failed and something that it has sent may still be in the
// program.
func (l *Link) Quiescing(s *Session) bool { return l.quiescing[s.localID] == s }

// isExpress reports whether payload claims to be an express frame.
func isExpress(payload []byte) bool {
	return len(payload) >= wire.HeaderLen && payload[kindAt] == byte(wire.KindExpress)
}

// kindAt is where a frame says of which kind it is.
const kindAt = 5

// receiveExpress takes in an express frame.
func (l *Link) receiveExpress(payload []byte) {
	h, body, fault := express.Read(payload)
	s := l.sessionByID(h.Session)
	if fault == wire.OK {
		fault = l.verify(s, &h, payload)
	}
	if fault != wire.OK {
		l.stats.Faults[fault]++
		return
	}
	if a := l.waiting[h.Session]; a != nil {
		s = l.arise(a)
	}
	switch {
	case s == nil:
		l.stats.Unknown++
	case s.state == dead:
		l.answerDead(s)
	case s.state != open:
		l.stats.Unknown++ // as for a bundle, the acceptance of the hello is still to come
	case h.Flags == wire.FlagResponse:
		l.receiveAnswer(s, &h, body)
	default:
		if h.Exchange > s.serving.exchange || h.Exchange == s.serving.exchange && h.Try > s.serving.try {
			s.serving.exchange, s.serving.try = h.Exchange, h.Try
			s.liveness.Heard(l.Now) // one that comes again says nothing of the peer
		}
		l.serve(s, &h, body)
		l.cfg.Upper.Served()
	}
}

// verify says whether an express frame is whole and, where frames are signed, from the peer. s is
// its session, or nil.
func (l *Link) verify(s *Session, h *express.Header, payload []byte) wire.Fault {
	if l.trailer == 0 {
		return express.Verify(payload, nil)
	}
	var codes *secure.ExpressKeys
	if a := l.waiting[h.Session]; a != nil {
		codes = a.codes
	} else if s != nil {
		codes = s.codes
	}
	switch {
	case codes == nil:
		return wire.BadCode // there is no session that could have made it
	case h.Flags == wire.FlagResponse:
		return express.Verify(payload, (*siphash.Key)(&codes.Answers.Received))
	}
	return express.Verify(payload, (*siphash.Key)(&codes.Requests.Received))
}

// serve takes a request of s that the program has not executed as the bundle that it would
// have been, or answers again what is done. One that the program was interrupted at waits
// for a repetition that does not go round the program.
func (l *Link) serve(s *Session, h *express.Header, body []byte) {
	if s.serving.table == None {
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
