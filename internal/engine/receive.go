package engine

import (
	"github.com/xdprma/xdprma/internal/reliable"
	"github.com/xdprma/xdprma/internal/wire"
)

// Receive takes in one frame: a UDP payload that was addressed to this rank. The
// payload is not kept. Path leads back to the sender where the frame is a
// handshake.
func (e *Engine) Receive(now int64, payload []byte, path PathID) {
	e.now = now
	e.Stats.Frames++
	var h wire.Header
	if f := h.Decode(payload); f != wire.OK {
		e.Stats.Faults[f]++
		return
	}
	body := payload[wire.HeaderLen:]
	if h.Kind == wire.KindHello {
		e.receiveHello(path, body)
		return
	}
	s := e.session(h.Session)
	if s == nil {
		e.Stats.Unknown++
		return
	}
	if s.state == dead {
		e.answerDead(s)
		return
	}
	switch h.Kind {
	case wire.KindHelloAck:
		e.receiveHelloAck(s, body)
	case wire.KindReset:
		e.Stats.Resets++
		e.fail(s, errReset)
	case wire.KindAck, wire.KindData:
		if s.state != open {
			e.Stats.Unknown++ // the acceptance of the hello is still to come
			return
		}
		s.heard, s.expired = now, 0
		e.acknowledge(s, &h)
		if h.Kind == wire.KindData {
			e.receiveBundle(s, &h, body)
		}
	}
}

// recentSessions is how many sessions are found without a look into the map, a
// power of two. Session ids are random.
const recentSessions = 64

// session returns the session that frames with the given id belong to, or nil.
func (e *Engine) session(id uint64) *Session {
	at := &e.recent[id%recentSessions]
	if s := *at; s != nil && s.localID == id {
		return s
	}
	s := e.byID[id]
	if s != nil {
		*at = s
	}
	return s
}

// Refuse ends the session with the given id, which the device cannot serve.
func (e *Engine) Refuse(id uint64, why error) {
	if s := e.byID[id]; s != nil {
		e.fail(s, why)
	}
}

// answerDead tells a peer, now and then, that it has been given up.
func (e *Engine) answerDead(s *Session) {
	if s.remoteID != 0 && e.now >= s.resetAt {
		s.resetAt = e.now + 100*millisecond
		e.sendControl(wire.KindReset, s.remoteID, s.path, nil)
	}
}

func (e *Engine) receiveBundle(s *Session, h *wire.Header, body []byte) {
	c := request
	if h.Flags&wire.FlagResponse != 0 {
		c = response
	}
	if h.Packet == 0 || c == response && h.Flags&(wire.FlagOrdered|wire.FlagFence) != 0 {
		e.Stats.Faults[wire.BadFrame]++
		return
	}
	if h.Sequence == 0 && !e.receiveLoose(s, h, c, &body) {
		return
	}
	r := &s.recv[c]
	switch r.Check(h.Sequence) {
	case reliable.TooFar:
		e.Stats.OutOfSpan++
		return
	case reliable.Duplicate:
		// It took effect the first time; the peer only needs to hear so.
		e.Stats.Duplicates++
		s.ackNow = true
	case reliable.Fresh:
		if c == response {
			r.Received(h.Sequence)
			e.answers(s, body)
			r.Applied(h.Sequence)
		} else if !e.takeRequest(s, h, body) {
			e.Stats.ParkingFull++
			s.ackNow = true // this rank is full, not dead
			e.markDirty(s)
			return
		}
		e.Stats.Bundles++
	}
	e.arrived(s, h)
}

// receiveLoose takes in a frame without a sequence of its own: a probe, or a piece of a
// bundle. It reports whether a bundle is complete now, which h and body then are of.
func (e *Engine) receiveLoose(s *Session, h *wire.Header, c class, body *[]byte) bool {
	var w wire.PieceOf
	if !w.Decode(*body) {
		e.Stats.Faults[wire.BadFrame]++
		return false
	}
	if w.Sequence == 0 {
		e.arrived(s, h)
		return false
	}
	h.Sequence = w.Sequence
	if s.recv[c].Check(w.Sequence) != reliable.Fresh {
		return true
	}
	records, ok := e.join(s, c, w, (*body)[wire.PieceLen:])
	if !ok {
		e.Stats.Faults[wire.BadFrame]++
	}
	*body = records
	return records != nil
}

// arrived has the packet of h acknowledged.
func (e *Engine) arrived(s *Session, h *wire.Header) {
	s.packets.Add(h.Packet)
	s.unacked++
	if h.Flags&wire.FlagAckNow != 0 {
		s.ackNow = true
	}
	if s.ackAt == 0 {
		s.ackAt = e.now + ackDelay
	}
	e.markDirty(s)
}

// takeRequest applies a bundle of requests, or parks it until it can be
// applied. It returns false, having done nothing, if there is no room to park:
// then the bundle counts as never received.
func (e *Engine) takeRequest(s *Session, h *wire.Header, body []byte) bool {
	b := bundle{session: s, seq: h.Sequence, order: h.Order, flags: h.Flags, body: body}
	// Applying may stop half way for want of transmit slots, so there must be a place
	// to keep the rest.
	if b.row = e.place(s, b.due()); b.row == numRows {
		return false
	}
	s.recv[request].Received(h.Sequence)
	if !e.tryApply(&b) {
		e.Stats.Parked++
		e.parked.add(e.parked.copyOf(&b))
		e.await(s) // if the peer dies, what it left here must go
	} else if e.parked.n > 0 {
		e.retryParked()
	}
	return true
}
