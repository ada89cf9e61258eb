package engine

import (
	"github.com/xdprma/xdprma/internal/reliable"
	"github.com/xdprma/xdprma/internal/wire"
)

// ackEvery is how many bundles may arrive before one acknowledgement goes out,
// well below the 64 packets that an acknowledgement can name.
const ackEvery = 16

// room returns the open bundle of class c if it has space for a record with n
// bytes of data, or a new one; none if there is no slot to be had now. A
// bundle that is too full is sent on its way.
func (e *Engine) room(s *Session, c class, n int) int32 {
	i := s.open[c]
	if i != none {
		if c == request && s.lockOpen != nil {
			e.closeBundle(s, c) // a lock's bundle holds nothing else
		} else if int(e.slots[i].length)+wire.RecordSize(n) <= s.maxPayload {
			return i
		} else {
			e.closeBundle(s, c)
		}
	}
	return e.openBundle(s, c)
}

// space returns how many bytes of data a record in the open bundle could have,
// or in a new one if none is open.
func (e *Engine) space(s *Session, c class) int {
	used := wire.HeaderLen
	if i := s.open[c]; i != none {
		used = int(e.slots[i].length)
	}
	return (s.maxPayload - used - wire.RecordLen) &^ 7
}

// maxQueued is how many bundles of a class may wait for the window. More would
// only be written early, and be out of the processor's cache when they are sent.
const maxQueued = 32

// mayOpen reports whether n bundles of class c may be opened now.
func (e *Engine) mayOpen(s *Session, c class, n int32) bool {
	if !e.slotsAdmit(s, c, n) || s.queue[c].n+n > maxQueued {
		return false
	}
	// The peer remembers Span bundles; so far ahead, wait.
	return e.freeSlots >= e.ackReserve+n && s.nextSeq[c]+uint64(n) < s.acked[c]+reliable.Span
}

// sendRoom reports whether there is room for a request to s.
func (e *Engine) sendRoom(s *Session) bool {
	return s.state == dead || s.open[request] != none || e.mayOpen(s, request, 1)
}

func (e *Engine) openBundle(s *Session, c class) int32 {
	if !e.mayOpen(s, c, 1) {
		e.Stats.SlotsExhausted++
		return none
	}
	i := e.allocSlot()
	p := &e.slots[i]
	*p = slot{next: none, prev: none, state: slotOpen, class: c, session: s, length: wire.HeaderLen, seq: s.nextSeq[c]}
	if c == response {
		p.flags = wire.FlagResponse
	}
	s.nextSeq[c]++
	s.open[c] = i
	s.held[c]++
	e.held[c]++
	e.markDirty(s)
	return i
}

// appendRecord adds a record to bundle i, which has room for it, and returns
// the place for its data.
func (e *Engine) appendRecord(i int32, r *wire.Record, dataLen int) []byte {
	p := &e.slots[i]
	data := wire.PutRecord(e.cfg.Slab.Payload(i)[p.length:], r, dataLen)
	p.length += int32(wire.RecordSize(dataLen))
	return data
}

// closeBundle ends the open bundle of class c and sends it if the window allows.
func (e *Engine) closeBundle(s *Session, c class) {
	i := s.open[c]
	if i == none {
		return
	}
	s.open[c] = none
	if c == request {
		s.lockOpen = nil
	}
	p := &e.slots[i]
	if p.flags&wire.FlagOrdered != 0 {
		s.order++
		p.order = s.order
	}
	p.state = slotQueued
	e.pushBack(&s.queue[c], i)
	e.pump(s, c)
}

// pump sends what is queued, lost bundles first, as far as the window allows.
func (e *Engine) pump(s *Session, c class) {
	if s.state != open {
		return
	}
	window := min(int32(s.congestion.Window()), s.credits)
	for s.inFlight[c] < window {
		i := e.lostDue(s, c)
		if i == none {
			if i = s.queue[c].head; i == none {
				return
			}
			e.remove(&s.queue[c], i)
		}
		e.transmit(s, i)
	}
}

// lostDue takes out the first bundle found lost that may be sent again by now, or none.
func (e *Engine) lostDue(s *Session, c class) int32 {
	next := none
	for i := s.again[c].head; i != none; i = next {
		p := &e.slots[i]
		next = p.next
		if p.seq < s.acked[c] { // what was taken for lost was only late
			e.remove(&s.again[c], i)
			e.discard(s, i)
			continue
		}
		at := p.sentAt + s.patience(p)
		if at <= e.now {
			e.remove(&s.again[c], i)
			return i
		}
		if s.againAt == 0 || at < s.againAt {
			s.againAt = at
			e.wakeBy(at)
		}
	}
	return none
}

// patience is how long after its last transmission a bundle is sent again at the
// earliest. The first time that is at once. A bundle that is lost again and again may be
// one that cannot pass, and what else passes says nothing of it: so each backs off alone.
// When the peer has applied the oldest of all, it may have room for those that it had none
// for, and everything begins anew.
func (s *Session) patience(p *slot) int64 {
	if p.tries < 2 || p.applied != s.acked[p.class] {
		return 0
	}
	return min(s.rtt.Probe()<<min(p.tries-2, 16), reliable.MaxTimeout)
}

// transmit gives bundle i a fresh packet number, the newest acknowledgement and
// its checksum, and hands it to the device.
func (e *Engine) transmit(s *Session, i int32) {
	p := &e.slots[i]
	p.state, p.sentAt = slotFlight, e.now
	if p.sends == 0 {
		p.firstAt = e.now
		e.Stats.Sent++
	} else {
		e.Stats.Resent++
	}
	p.sends++
	if p.applied != s.acked[p.class] {
		p.applied, p.tries = s.acked[p.class], 0
	}
	p.tries++
	if p.class == request && p.flags&wire.FlagAckNow != 0 {
		s.promptSeq = max(s.promptSeq, p.seq)
	}
	if int(p.length) <= s.maxPayload && (p.tries <= doubtAfter || p.length <= wire.MinPayload) {
		p.packet, p.pieces, p.inDevice = s.nextPacket, 0, true
		s.nextPacket++
		e.stamp(s, e.cfg.Slab.Payload(i)[:p.length], wire.KindData, p)
		e.out = append(e.out, Out{Slot: i, Len: p.length, Path: s.path})
	} else {
		e.sendPieces(s, i)
	}
	e.pushBack(&s.flight, i)
	s.inFlight[p.class]++
	if s.resendAt == 0 {
		s.resendAt = e.now + s.rtt.Probe()
		e.wakeBy(s.resendAt)
	}
	if s.waiting == 0 {
		s.waiting, s.expired = e.now, 0
		s.pingAt = e.now + e.pingAfter(s)
		e.wakeBy(s.pingAt)
	}
	e.markActive(s)
}

// stamp writes the header of a frame to s and settles all acknowledgements due.
func (e *Engine) stamp(s *Session, b []byte, kind wire.Kind, p *slot) {
	h := wire.Header{
		Kind: kind, Session: s.remoteID, Credits: e.creditsFor(),
		AckLargest: s.packets.Largest, AckBits: s.packets.Bits,
		AckRequests: s.recv[request].Next(), AckResponses: s.recv[response].Next(),
		Refusals: s.refusalsSent,
	}
	if p != nil {
		h.Flags, h.Packet, h.Sequence, h.Order = p.flags, p.packet, p.seq, p.order
	}
	h.Encode(b)
	s.unacked, s.ackAt, s.ackNow = 0, 0, false
}

// service sends what a session has ready: open bundles, whatever the window now
// admits, and an acknowledgement if nothing else carried it.
func (e *Engine) service(s *Session) {
	if s.state == dead {
		return
	}
	if s.state == dialing {
		if s.pingAt != 0 && e.now >= s.pingAt {
			e.keepAlive(s)
			e.wakeBy(s.pingAt)
		}
		return
	}
	if s.toldGone < len(e.gone.told) || s.told < len(e.revoked.contexts) {
		e.passOn(s)
	}
	if len(s.posting) > 0 {
		e.sendPosts(s)
	}
	if len(s.deferring) > 0 {
		e.issueDeferred(s)
	}
	if len(s.marks) > 0 {
		e.sendMarks(s)
	}
	e.issueSends(s)
	e.tellNews(s)
	if s.leaving {
		e.sayBye(s)
	}
	for c := range numClasses {
		e.closeBundle(s, c)
		e.pump(s, c)
	}
	if s.reach.dueAt != 0 && e.now >= s.reach.dueAt {
		e.probe(s)
	}
	if s.ackNow || s.unacked >= ackEvery {
		e.sendAck(s)
	}
	if s.ackAt != 0 {
		e.wakeBy(s.ackAt)
	}
}

func (e *Engine) sendAck(s *Session) {
	if e.freeSlots == 0 {
		s.ackAt = e.now + ackDelay
		e.wakeBy(s.ackAt)
		return
	}
	i := e.allocSlot()
	b := e.cfg.Slab.Payload(i)[:wire.HeaderLen]
	e.stamp(s, b, wire.KindAck, nil)
	e.Stats.Acks++
	e.outputOnce(i, len(b), s.path)
}

// ping adds a record that only asks to be acknowledged at once.
func (e *Engine) ping(s *Session) {
	i := e.room(s, request, 0)
	if i == none {
		return
	}
	e.appendRecord(i, &wire.Record{Code: wire.CodePing}, 0)
	e.slots[i].flags |= wire.FlagAckNow
}

// push sends what is queued for the peer up to bundle seq and sees to it that
// its acknowledgement comes without delay.
func (e *Engine) push(s *Session, seq uint64) {
	if s.state == dead || s.acked[request] > seq || s.promptSeq >= seq {
		return
	}
	if i := s.open[request]; i != none {
		e.slots[i].flags |= wire.FlagAckNow
	} else if i := s.queue[request].tail; i != none {
		e.slots[i].flags |= wire.FlagAckNow
	} else {
		e.ping(s)
	}
	e.markDirty(s)
}
