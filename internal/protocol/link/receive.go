package link

import (
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// Receive takes in one frame: a UDP payload that was addressed to this rank. The
// payload is not kept. Path leads back to the sender where the frame is a
// handshake.
func (l *Link) Receive(payload []byte, path PathID) {
	l.stats.Frames++
	if isExpress(payload) {
		l.receiveExpress(payload, false)
		return
	}
	if l.cfg.Credentials != nil && wire.IsHandshake(payload) {
		l.receiveGreeting(path, payload)
		return
	}
	var h wire.Header
	s, payload := l.believe(payload, &h, path)
	if s == nil {
		return
	}
	body := payload[wire.HeaderLen:]
	if s.state == dead {
		l.answerDead(s)
		return
	}
	switch h.Kind {
	case wire.KindHelloAck:
		l.receiveHelloAck(s, body)
	case wire.KindReset:
		l.stats.Resets++
		s.Fail(ErrReset)
	case wire.KindAck, wire.KindData:
		if s.state != open {
			l.stats.Unknown++ // the acceptance of the hello is still to come
			return
		}
		s.liveness.Heard(l.Now)
		l.acknowledge(s, &h)
		if h.Kind == wire.KindData {
			l.receiveBundle(s, &h, body)
		}
	}
}

// isExpress reports whether payload claims to be an express frame.
func isExpress(payload []byte) bool {
	return len(payload) >= wire.HeaderLen && payload[kindAt] == byte(wire.KindExpress)
}

// kindAt is where a frame says of which kind it is.
const kindAt = 5

// ReceiveHanded is Receive of an express answer that came as its sender has sent it, as a program
// in the kernel has found. The payload is not written to.
func (l *Link) ReceiveHanded(payload []byte) {
	l.stats.Frames++
	l.receiveExpress(payload, true)
}

// receiveExpress takes in an express frame, which is verified or is not yet.
func (l *Link) receiveExpress(payload []byte, verified bool) {
	h, body, fault := express.Read(payload)
	s := l.sessionByID(h.Session)
	switch {
	case fault != wire.OK:
	case !verified:
		fault = l.verify(s, &h, payload)
	case h.Flags != wire.FlagResponse:
		fault = wire.BadFlags // a program hands over answers, and nothing else
	}
	if fault != wire.OK {
		l.stats.Faults[fault]++
		return
	}
	if len(l.waiting) > 0 {
		if a := l.waiting[h.Session]; a != nil {
			s = l.arise(a)
		}
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
		l.receiveRequest(s, &h, body)
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

// Answering returns the sequence of the bundle of responses that is taken in.
func (s *Session) Answering() uint64 { return s.answering }

// Heard reports whether all bundles of class c up to a sequence have been taken in.
func (s *Session) Heard(c Class, seq uint64) bool { return s.recv[c].Next() > seq }

// recentSessions is how many sessions are found without a look into the map, a
// power of two. Session ids are random.
const recentSessions = 64

// sessionByID returns the session that frames with the given id belong to, or nil.
func (l *Link) sessionByID(id uint64) *Session {
	at := &l.recent[id%recentSessions]
	if s := *at; s != nil && s.localID == id {
		return s
	}
	s := l.byID[id]
	if s != nil {
		*at = s
	}
	return s
}

// Refuse ends the session with the given id, which the device cannot serve.
func (l *Link) Refuse(id uint64, why error) {
	if a := l.waiting[id]; a != nil {
		l.withdraw(a)
	}
	if s := l.byID[id]; s != nil {
		s.Fail(why)
	}
}

// answerDead tells a peer, now and then, that it has been given up.
func (l *Link) answerDead(s *Session) {
	if s.remoteID == 0 || l.Now < s.resetAt || l.trailer > 0 && s.guard == nil {
		return
	}
	s.resetAt = l.Now + 100*millisecond
	if l.freeSlots > 0 {
		i := l.allocSlot()
		h := wire.Header{Kind: wire.KindReset, Session: s.remoteID, Credits: l.credits}
		l.outputOnce(i, l.protect(s, i, wire.HeaderLen, &h), s.path)
	}
}

func (l *Link) receiveBundle(s *Session, h *wire.Header, body []byte) {
	c := Request
	if h.Flags&wire.FlagResponse != 0 {
		c = Response
	}
	if h.Packet == 0 || c == Response && h.Flags&(wire.FlagOrdered|wire.FlagAfterAll) != 0 {
		l.stats.Faults[wire.BadFrame]++
		return
	}
	if h.Sequence == 0 && !l.receiveLoose(s, h, c, &body) {
		return
	}
	r := &s.recv[c]
	switch r.Check(h.Sequence) {
	case reliable.TooFar:
		l.stats.OutOfSpan++
		return
	case reliable.Duplicate:
		// It took effect the first time; the peer only needs to hear so.
		l.stats.Duplicates++
		s.repeatAcks()
	case reliable.Fresh:
		if c == Response {
			r.Received(h.Sequence)
			s.answering = h.Sequence
			s.liveness.Moved()
			l.cfg.Upper.Answers(s, body)
			r.Applied(h.Sequence)
		} else if !l.takeRequest(s, h, body) {
			l.stats.ParkingFull++
			s.acks.now = true // this rank is full, not dead
			s.MarkDirty()
			return
		}
		l.stats.Bundles++
		l.wantLength(s, len(body))
	}
	l.arrived(s, h)
}

// receiveLoose takes in a frame without a sequence of its own: a probe, or a piece of a
// bundle. It reports whether a bundle is complete now, which h and body then are of.
func (l *Link) receiveLoose(s *Session, h *wire.Header, c Class, body *[]byte) bool {
	var w wire.PieceOf
	if !w.Decode(*body) {
		l.stats.Faults[wire.BadFrame]++
		return false
	}
	if w.Sequence == 0 {
		l.arrived(s, h)
		return false
	}
	h.Sequence = w.Sequence
	if s.recv[c].Check(w.Sequence) != reliable.Fresh {
		return true
	}
	records, ok := l.join(s, c, w, (*body)[wire.PieceLen:])
	if !ok {
		l.stats.Faults[wire.BadFrame]++
	}
	*body = records
	return records != nil
}

// arrived has the packet of h acknowledged.
func (l *Link) arrived(s *Session, h *wire.Header) {
	came := &s.acks.came[Single]
	if h.Flags&wire.FlagJoined != 0 {
		came = &s.acks.came[Joined]
	}
	came.packets.Add(h.Packet)
	s.renewing.used = s.renewing.used || h.Sequence != 0
	came.unacked++
	if h.Flags&wire.FlagAckNow != 0 {
		s.acks.now = true
	}
	if s.acks.at == 0 {
		s.acks.at = l.Now + ackDelay
	}
	s.MarkDirty()
}

// repeatAcks has the packets of both ways acknowledged at once: the peer has sent again what
// came by either.
func (s *Session) repeatAcks() {
	s.acks.now = true
	for w := range s.acks.came {
		if came := &s.acks.came[w]; came.packets.Largest > 0 {
			came.unacked = max(came.unacked, 1)
		}
	}
}

// takeRequest applies a bundle of requests, or parks it until it can be
// applied. It returns false, having done nothing, if there is no room to park:
// then the bundle counts as never received.
func (l *Link) takeRequest(s *Session, h *wire.Header, body []byte) bool {
	b := &l.arriving
	*b = Bundle{Session: s, Body: body, seq: h.Sequence, order: h.Order, flags: h.Flags}
	// Applying may stop half way for want of transmit slots, so there must be a place
	// to keep the rest.
	if b.row = l.place(s, b.due()); b.row == numRows {
		return false
	}
	s.recv[Request].Received(h.Sequence)
	if !l.tryApply(b) {
		l.stats.Parked++
		l.parked.add(l.parked.copyOf(b))
		s.Await() // if the peer dies, what it left here must go
	} else if l.parked.n > 0 {
		l.retryParked()
	}
	return true
}
