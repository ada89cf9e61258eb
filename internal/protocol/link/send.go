package link

import (
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// ackEvery is how many bundles may arrive before one acknowledgement goes out,
// well below the 64 packets that an acknowledgement can name.
const ackEvery = 16

// Room returns the open bundle of class c if it has space for a record with n
// bytes of data, or a new one; None if there is no slot to be had now. A
// bundle that is too full is sent on its way.
func (s *Session) Room(c Class, n int) int32 {
	l := s.link
	i := s.open[c]
	if i != None {
		if c == Request && s.sealed {
			s.CloseBundle(c)
		} else if int(l.slots[i].length)+wire.RecordSize(n) <= s.maxPayload {
			return i
		} else {
			s.CloseBundle(c)
		}
	}
	return s.OpenBundle(c)
}

// Space returns how many bytes of data a record in the open bundle could have,
// or in a new one if none is open.
func (s *Session) Space(c Class) int {
	used := wire.HeaderLen
	if i := s.open[c]; i != None {
		used = int(s.link.slots[i].length)
	}
	return (s.maxPayload - used - wire.RecordLen) &^ 7
}

// maxQueued is how many bundles of a class may wait for the window. More would
// only be written early, and be out of the processor's cache when they are sent.
const maxQueued = 32

// MayOpen reports whether n bundles of class c may be opened now.
func (s *Session) MayOpen(c Class, n int32) bool {
	l := s.link
	if !l.slotsAdmit(s, c, n) || s.queue[c].n+n > maxQueued {
		return false
	}
	// The peer remembers Span bundles; so far ahead, wait.
	return l.freeSlots >= l.ackReserve+n && s.nextSeq[c]+uint64(n) < s.acked[c]+reliable.Span
}

// SendRoom reports whether there is room for a request to s.
func (s *Session) SendRoom() bool {
	return s.state == dead || s.open[Request] != None || s.MayOpen(Request, 1)
}

// OpenBundle begins a bundle of class c, of which none is open, and returns its slot; None
// if there is none to be had now.
func (s *Session) OpenBundle(c Class) int32 {
	l := s.link
	if !s.MayOpen(c, 1) {
		l.stats.SlotsExhausted++
		return None
	}
	i := l.allocSlot()
	p := &l.slots[i]
	*p = slot{next: None, prev: None, state: slotOpen, class: c, session: s, length: wire.HeaderLen, seq: s.nextSeq[c]}
	if c == Response {
		p.flags = wire.FlagResponse
	}
	if c == Request {
		s.pace.begins(s.acked[c] == p.seq)
	}
	s.nextSeq[c]++
	s.open[c] = i
	s.held[c]++
	l.held[c]++
	s.MarkDirty()
	return i
}

// Append adds a record to bundle i, which has room for it, and returns the place for its
// data.
func (l *Link) Append(i int32, r *wire.Record, dataLen int) []byte {
	data, _ := l.Add(i, r, dataLen, 0)
	return data
}

// Add is Append and Mark. It returns the bundle's sequence, too.
func (l *Link) Add(i int32, r *wire.Record, dataLen int, flags uint8) (data []byte, seq uint64) {
	p := &l.slots[i]
	data = wire.PutRecord(l.cfg.Slab.Payload(i)[p.length:], r, dataLen)
	p.length += int32(wire.RecordSize(dataLen))
	p.flags |= flags
	return data, p.seq
}

// Mark adds flags to the bundle in slot i.
func (l *Link) Mark(i int32, flags uint8) { l.slots[i].flags |= flags }

// Prompt lets the bundle in slot i be an exchange although nobody waits for its end: somebody may
// wait for its effect.
func (l *Link) Prompt(i int32) { l.slots[i].prompt = true }

// Sequence returns the sequence of the bundle in slot i.
func (l *Link) Sequence(i int32) uint64 { return l.slots[i].seq }

// Begun returns the slot of the open bundle of class c, or None.
func (s *Session) Begun(c Class) int32 { return s.open[c] }

// Empty reports whether the bundle in slot i has no record yet.
func (l *Link) Empty(i int32) bool { return l.slots[i].length == wire.HeaderLen }

// Fits reports whether the open bundle of class c has space for a record with n bytes of
// data.
func (s *Session) Fits(c Class, n int) bool {
	return int(s.link.slots[s.open[c]].length)+wire.RecordSize(n) <= s.maxPayload
}

// Seal has the open bundle of requests closed by the next call of Room: it is for
// whoever began it.
func (s *Session) Seal() { s.sealed = true }

// Sealed reports whether the open bundle of requests is sealed.
func (s *Session) Sealed() bool { return s.sealed }

// MaxPayload returns the length that bundles to the peer should have at most.
func (s *Session) MaxPayload() int { return s.maxPayload }

// Limit returns the length that bundles to the peer may have at most, if they cannot be
// shorter.
func (s *Session) Limit() int { return s.length.limit }

// Acked returns below which sequence the peer has applied all bundles of class c.
func (s *Session) Acked(c Class) uint64 { return s.acked[c] }

// Next returns the sequence of the bundle of class c that will be opened next.
func (s *Session) Next(c Class) uint64 { return s.nextSeq[c] }

// Reserve writes an answer's fixed part into a bundle that has room for it and for n
// bytes of data, without making it part of the bundle: Commit does. It returns the
// bundle's slot, or None, and the place for the data.
func (s *Session) Reserve(r *wire.Record, n int) (int32, []byte) {
	i := s.Room(Response, n)
	if i == None {
		return None, nil
	}
	s.MarkDirty()
	l := s.link
	return i, wire.PutRecord(l.cfg.Slab.Payload(i)[l.slots[i].length:], r, n)
}

// Commit makes the answer with n bytes of data that was reserved part of bundle i.
func (l *Link) Commit(i int32, n int) { l.slots[i].length += int32(wire.RecordSize(n)) }

// CloseBundle ends the open bundle of class c, if there is one, and sends what the window
// allows. The slots that pieces of lost bundles take are gone then: until the next call of
// the link from outside, room that MayOpen reports is taken by nothing but new bundles.
func (s *Session) CloseBundle(c Class) {
	l := s.link
	i := s.open[c]
	if i == None {
		if s.queue[c].n+s.again[c].n > 0 {
			l.pump(s, c)
		}
		return
	}
	s.open[c] = None
	if c == Request {
		s.sealed = false
		if l.tryExchange(s, i) {
			return
		}
	}
	l.queueUp(s, c, i)
	l.fill(s, c)
}

// queueUp has the bundle in slot i, which is complete, wait for the window.
func (l *Link) queueUp(s *Session, c Class, i int32) {
	l.slots[i].state = slotQueued
	l.pushBack(&s.queue[c], i)
	if s.queue[c].n > 1 {
		l.letPass(s, c)
	}
}

// A small bundle leaves before longer ones that are queued, and a few may go beyond the window,
// with credits that others leave: it does not wait for a long transfer before it. The target applies
// bundles by their sequences and their places in the order, whenever they arrive. Places
// are given as bundles leave, so no ordered one passes another.
const (
	smallBundle = 512 // bytes
	keptCredits = 16  // of so many credits one is for small bundles
)

func (l *Link) isSmall(i int32) bool { return l.slots[i].length <= smallBundle }

// letPass moves the bundle of class c that was queued last before longer ones, if it may
// leave before them.
func (l *Link) letPass(s *Session, c Class) {
	q := &s.queue[c]
	i, after := q.tail, None
	if !l.isSmall(i) || l.slots[i].flags&wire.FlagAfterAll != 0 { // which waits for those before it in any case
		return
	}
	j := q.head
	for ; j != i && l.isSmall(j); j = l.slots[j].next {
		after = j
	}
	for ; j != i; j = l.slots[j].next {
		if l.slots[j].flags&l.slots[i].flags&wire.FlagOrdered != 0 {
			return
		}
	}
	if l.slots[i].prev == after {
		return
	}
	l.remove(q, i)
	l.insertAfter(q, after, i)
	// The acknowledgement of i says nothing of those that it passes.
	l.slots[q.tail].flags |= l.slots[i].flags & wire.FlagAckNow
}

// pump sends what is queued, lost bundles first, as far as the window allows. One that is alone may be
// an exchange.
func (l *Link) pump(s *Session, c Class) {
	if q := &s.queue[c]; c == Request && q.n == 1 {
		if i := q.head; l.tryExchange(s, i) {
			l.remove(q, i)
			return
		}
	}
	l.fill(s, c)
}

// fill is pump without exchanges.
func (l *Link) fill(s *Session, c Class) {
	if s.state != open || s.queue[c].n+s.again[c].n == 0 || c == Request && s.exchange.Running() {
		return
	}
	window := min(int32(s.congestion.Window()), s.credits-s.credits/keptCredits)
	for s.inFlight[c]-s.extra[c] < window {
		i := l.lostDue(s, c)
		if i == None {
			if i = s.queue[c].head; i == None {
				return
			}
			l.remove(&s.queue[c], i)
		}
		l.transmit(s, i)
	}
	for i := s.queue[c].head; i != None && l.isSmall(i) && s.extra[c] < s.credits/keptCredits; i = s.queue[c].head {
		l.remove(&s.queue[c], i)
		l.slots[i].extra = true
		s.extra[c]++
		l.transmit(s, i)
	}
}

// lostDue takes out the first bundle found lost that may be sent again by now, or None.
func (l *Link) lostDue(s *Session, c Class) int32 {
	next := None
	for i := s.again[c].head; i != None; i = next {
		p := &l.slots[i]
		next = p.next
		if p.seq < s.acked[c] { // what was taken for lost was only late
			l.remove(&s.again[c], i)
			l.discard(s, i)
			continue
		}
		at := p.sentAt + s.patience(p)
		if at <= l.Now {
			l.remove(&s.again[c], i)
			return i
		}
		if s.againAt == 0 || at < s.againAt {
			s.againAt = at
			l.WakeBy(at)
		}
	}
	return None
}

// patience is how long after its last transmission a bundle is sent again at the
// earliest. The first time that is at once. A bundle that is lost again and again may be
// one that cannot pass, and other bundles that pass say nothing of it: so each backs off
// alone. When the peer has applied the oldest bundle of all, it may have room for
// bundles that it had none for, and everything begins anew.
func (s *Session) patience(p *slot) int64 {
	if p.tries < 2 || p.applied != s.acked[p.class] {
		return 0
	}
	return min(s.rtt.Probe()<<min(p.tries-2, 16), reliable.MaxTimeout)
}

// transmit gives bundle i a fresh packet number, the newest acknowledgement and
// its checksum, and hands it to the device.
func (l *Link) transmit(s *Session, i int32) {
	if !l.unseal(s, i) {
		return
	}
	p := &l.slots[i]
	p.state, p.sentAt = slotFlight, l.Now
	if p.sends == 0 {
		p.firstAt = l.Now
		l.stats.Sent++
		l.wantLength(s, int(p.length))
		s.sentSeq[p.class] = max(s.sentSeq[p.class], p.seq+1)
		if p.flags&wire.FlagOrdered != 0 { // not before: an exchange takes no place in the order
			s.order++
			p.order = s.order
		}
	} else {
		l.stats.Resent++
	}
	p.sends++
	if p.applied != s.acked[p.class] {
		p.applied, p.tries = s.acked[p.class], 0
	}
	p.tries++
	if p.class == Request && p.flags&wire.FlagAckNow != 0 {
		s.promptSeq = max(s.promptSeq, p.seq)
	}
	if int(p.length) <= s.maxPayload && (p.tries <= doubtAfter || int(p.length) <= l.minPayload) {
		if p.sends == 1 && s.runs.room > 0 {
			l.leave(s, i)
		} else {
			l.launch(s, i, Single, false)
		}
	} else {
		l.sendPieces(s, i)
		l.fly(s, i)
	}
	s.inFlight[p.class]++
	s.listen()
	s.markActive()
}

// launch hands bundle i to the device, to go by way w; more says that the next bundle to go
// shares its message.
func (l *Link) launch(s *Session, i int32, w Way, more bool) {
	p := &l.slots[i]
	if p.sends > 1 && p.way != w {
		p.first = 0
	}
	p.way, p.packet, p.pieces, p.inDevice = w, s.nextPacket(w), 0, true
	if p.sends == 1 {
		p.first = p.packet
	}
	n := l.stamp(s, i, int(p.length), wire.KindData, p)
	l.out = append(l.out, Out{Slot: i, Len: int32(n), Path: s.path, Way: w, More: more})
	if w == Joined {
		l.stats.Joined++
	}
	l.fly(s, i)
}

// fly takes note that bundle i is on its way.
func (l *Link) fly(s *Session, i int32) {
	t := &s.ways[l.slots[i].way]
	l.pushBack(&t.flight, i)
	s.renewing.used = true
	if t.resendAt == 0 {
		t.resendAt = l.Now + s.rtt.Probe()
		l.WakeBy(t.resendAt)
	}
}

// nextPacket returns a fresh packet number of way w.
func (s *Session) nextPacket(w Way) uint64 {
	s.ways[w].nextPacket++
	return s.ways[w].nextPacket - 1
}

// stamp writes the header of a frame to s with a payload of n bytes in slot i, protects the
// frame, and returns its length. It acknowledges what came by one of the ways: the one by which
// most came since the last acknowledgement.
func (l *Link) stamp(s *Session, i int32, n int, kind wire.Kind, p *slot) int {
	w := Single
	if s.acks.came[Joined].unacked > s.acks.came[Single].unacked {
		w = Joined
	}
	came := &s.acks.came[w]
	h := wire.Header{
		Kind: kind, Session: s.remoteID, Credits: l.credits,
		AckLargest: came.packets.Largest, AckBits: came.packets.Bits,
		AckRequests: s.recv[Request].Next(), AckResponses: s.recv[Response].Next(),
		Refusals: s.Told.Sent,
	}
	if p != nil {
		h.Flags, h.Packet, h.Sequence, h.Order = p.flags, p.packet, s.remoteSeq(p), p.order
		if p.way == Joined {
			h.Flags |= wire.FlagJoined
		}
	}
	if w == Joined {
		h.Flags |= wire.FlagOfJoined
	}
	n = l.protect(s, i, n, &h)
	if came.unacked = 0; s.acks.came[Joined].unacked+s.acks.came[Single].unacked == 0 {
		s.acks.at, s.acks.now = 0, false
	}
	return n
}

// remoteSeq returns the sequence that bundle p has at the peer. A frame without a sequence
// has none.
func (s *Session) remoteSeq(p *slot) uint64 {
	if p.class == Request && p.seq != 0 {
		return p.seq - s.exchange.Skipped()
	}
	return p.seq
}

// service sends what a session has ready: open bundles, whatever the window now
// admits, and an acknowledgement if nothing else carried it.
func (l *Link) service(s *Session) {
	if s.state == dead {
		return
	}
	if s.state == dialing {
		if s.liveness.Due(l.Now) {
			l.keepAlive(s)
			l.WakeBy(s.liveness.AskAt())
		}
		return
	}
	l.cfg.Upper.Ready(s)
	s.promptLone()
	for c := range NumClasses {
		s.CloseBundle(c)
	}
	if s.length.dueAt != 0 && l.Now >= s.length.dueAt {
		l.probe(s)
	}
	single, joined := s.acks.came[Single].unacked, s.acks.came[Joined].unacked
	carried := s.leaving.n > 0 && (single == 0 || joined == 0) // by what Output sends
	if (s.acks.now || single >= ackEvery || joined >= ackEvery) && !carried {
		l.sendAcks(s)
	}
	if s.acks.at != 0 {
		l.WakeBy(s.acks.at)
	}
}

// sendAcks sends a frame for each way by which something came since the last
// acknowledgement.
func (l *Link) sendAcks(s *Session) {
	for due := true; due; due = s.acks.at != 0 {
		if l.freeSlots == 0 {
			s.acks.at = l.Now + ackDelay
			l.WakeBy(s.acks.at)
			return
		}
		i := l.allocSlot()
		n := l.stamp(s, i, wire.HeaderLen, wire.KindAck, nil)
		l.stats.Acks++
		l.outputOnce(i, n, s.path)
	}
}

// ping adds a record that only asks to be acknowledged at once. It returns false if there
// is no room.
func (l *Link) ping(s *Session) bool {
	pace := s.pace
	i := s.Room(Request, 0)
	s.pace = pace // it says nothing of how calls follow each other
	if i == None {
		return false
	}
	l.Append(i, &wire.Record{Code: wire.CodePing}, 0)
	l.slots[i].flags |= wire.FlagAckNow
	return true
}

// ask is ping where there is no room in bundles: the peer has not applied as many as it may
// be sent. It is not sent again: if the peer stays silent, that counts as a timeout.
func (l *Link) ask(s *Session) {
	if l.inquire(s) != 0 {
		s.liveness.Expired()
	}
}

// Push sends what is queued for the peer up to bundle seq and sees to it that
// its acknowledgement comes without delay.
func (s *Session) Push(seq uint64) {
	l := s.link
	if s.state == dead || s.acked[Request] > seq || s.promptSeq >= seq {
		return
	}
	if i := s.open[Request]; i != None {
		l.slots[i].flags |= wire.FlagAckNow
	} else if i := s.queue[Request].tail; i != None {
		l.slots[i].flags |= wire.FlagAckNow
	} else {
		l.ping(s)
	}
	s.MarkDirty()
}
