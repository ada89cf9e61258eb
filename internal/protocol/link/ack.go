package link

import (
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// lostBehind is how many later packets must have arrived before one that is
// missing counts as lost: fewer would take reordering for loss.
const lostBehind = 3

// acknowledge takes in what a frame's header says about the packets that this
// rank has sent.
func (l *Link) acknowledge(s *Session, h *wire.Header) {
	requests := h.AckRequests + s.exchange.Skipped()
	w := Single
	if h.Flags&wire.FlagOfJoined != 0 {
		w = Joined
	}
	if h.AckLargest >= s.ways[w].nextPacket || requests > s.sentSeq[Request] || h.AckResponses > s.sentSeq[Response] {
		l.stats.BadAcks++
		return
	}
	s.credits = int32(min(max(h.Credits, 1), reliable.Span/2))
	if requests > s.acked[Request] || h.AckResponses > s.acked[Response] {
		s.overdue = 0
	}
	if requests > s.acked[Request] {
		s.acked[Request] = requests
		s.liveness.Moved()
	}
	s.acked[Response] = max(s.acked[Response], h.AckResponses)
	if int32(h.Refusals-s.Told.Heard) > 0 {
		s.Told.Heard = h.Refusals
	}
	if x := &s.exchange; x.Running() && s.acked[Request] > l.slots[x.Current().Slot].seq {
		x.Acknowledged(l.Now)
		l.exchangeTaken(s) // no answer says so, or it is late
	}
	if h.AckLargest > s.ways[w].ackLargest {
		s.ways[w].ackLargest = h.AckLargest
		if w == Joined {
			s.runs.silent = 0
		}
	}
	if s.suspicion.since != 0 && s.ways[Single].ackLargest >= s.suspicion.packet {
		l.acquit(s)
	}
	if r := &s.renewing; r.packet != 0 && s.ways[Single].ackLargest >= r.packet {
		r.askAt = l.Now
		l.WakeBy(l.Now)
	}
	l.settle(s, w, h.AckLargest, h.AckBits)
	l.settleApplied(s, 1-w)
	if s.length.pending {
		l.probed(s, h)
	}
	if w == Joined && s.runs.probe != 0 {
		l.proven(s, h)
	}
	if !s.owes() {
		s.liveness.Settle()
	}
}

// settle takes out of flight what the peer has, by an acknowledgement of packets of way w
// up to largest, and what must be lost.
func (l *Link) settle(s *Session, w Way, largest, bits uint64) {
	t := &s.ways[w]
	acked, lost, fresh := 0, 0, false
	for i := t.flight.head; i != None; {
		p := &l.slots[i]
		if p.packet > largest {
			if p.first == largest && largest != 0 { // it was sent again too early
				s.rtt.Sample(s.rtt.Credible(l.Now - p.firstAt))
				l.landed(s, i)
				acked++
			}
			break
		}
		next := p.next
		switch {
		case reliable.Has(largest, bits, p.packet) || p.pieces > 0 && p.pieceArrived(largest, bits) || p.seq < s.acked[p.class]:
			if p.packet == largest && p.flags&wire.FlagAckNow != 0 {
				s.rtt.Sample(l.Now - p.sentAt)
				l.rtt.Sample(l.Now - p.sentAt)
			}
			l.landed(s, i)
			acked++
		case p.packet+uint64(p.pieces)+lostBehind > largest:
		case p.inDevice:
			l.lookAgain(s)
		default:
			fresh = fresh || p.packet > t.cutPacket
			if w == Joined {
				s.runs.lost(p.packet, t.nextPacket, l.Now)
			}
			l.lose(s, i)
			lost++
		}
		i = next
	}
	l.moved(s, w, acked)
	if lost > 0 {
		l.stats.Lost += uint64(lost)
		t.cutPacket = t.nextPacket - 1
		s.congestion.Lost(fresh)
		s.goesOn()
	}
}

// settleApplied takes out of flight what has been sent by way w first and is known to be
// applied.
func (l *Link) settleApplied(s *Session, w Way) {
	t, acked := &s.ways[w], 0
	for t.flight.head != None && l.slots[t.flight.head].seq < s.acked[l.slots[t.flight.head].class] {
		l.landed(s, t.flight.head)
		acked++
	}
	if acked > 0 {
		l.moved(s, w, acked)
	}
}

// moved follows from so many bundles that are known to have arrived by way w.
func (l *Link) moved(s *Session, w Way, acked int) {
	t := &s.ways[w]
	if acked > 0 {
		s.congestion.Acked(acked)
		s.rtt.Progress()
		t.resendAt, t.probed = 0, false
	}
	if t.flight.head == None {
		t.resendAt = 0
	} else if t.resendAt == 0 {
		t.resendAt = l.Now + s.rtt.Probe()
		l.WakeBy(t.resendAt)
	}
	if acked > 0 {
		s.goesOn()
	}
}

// goesOn has what waits for s sent as far as the window, which has changed, allows.
func (s *Session) goesOn() {
	if s.again[0].n+s.again[1].n+s.queue[0].n+s.queue[1].n > 0 || s.link.cfg.Upper.Waits(s) {
		s.MarkDirty()
	}
}

// pieceArrived reports whether an acknowledgement names a piece of p: it names the one
// that made p whole.
func (p *slot) pieceArrived(largest, bits uint64) bool {
	for n := p.packet; n <= p.packet+uint64(p.pieces); n++ {
		if reliable.Has(largest, bits, n) {
			return true
		}
	}
	return false
}

// lookAgain has what s lost found once the device has given back the slots.
func (l *Link) lookAgain(s *Session) {
	if !s.isLate {
		s.isLate = true
		l.late = append(l.late, s)
	}
}

// landed removes a bundle that the peer has from flight.
func (l *Link) landed(s *Session, i int32) {
	l.ground(s, i)
	if p := &l.slots[i]; p.way == Joined {
		s.runs.landed(l.longestRun(s))
	}
	l.discard(s, i)
}

// ground removes a bundle from flight.
func (l *Link) ground(s *Session, i int32) {
	p := &l.slots[i]
	l.remove(&s.ways[p.way].flight, i)
	s.inFlight[p.class]--
	if p.extra {
		p.extra = false
		s.extra[p.class]--
	}
	if p.way == Joined {
		s.runs.bytes -= int(p.length)
	}
}

// lose moves a bundle from flight to the list of bundles to be sent again. The list is
// in order, because the peer may have room for nothing but the first bundle that it
// lacks.
func (l *Link) lose(s *Session, i int32) {
	l.ground(s, i)
	p := &l.slots[i]
	p.state = slotQueued
	p.flags |= wire.FlagAckNow
	l.insert(&s.again[p.class], i)
	if p.way == Joined { // this says nothing of frames that go by themselves
		p.tries = 0
		return
	}
	if p.tries >= doubtAfter && p.pieces == 0 && int(p.length) > l.minPayload && s.maxPayload > l.minPayload {
		l.shrink(s)
	}
	if p.sends >= 4 {
		l.seekOverdue(s, p)
	}
}

// seekOverdue ends s if p, which was lost several times, is the oldest bundle of its
// class that the peer lacks, and has been for the limit. Later ones may have to wait for
// room at the peer, but the oldest is always taken in. The transmission that decides is
// one from after the limit, so that a pause of this process is no reason.
func (l *Link) seekOverdue(s *Session, p *slot) {
	for w := range s.ways {
		for i := s.ways[w].flight.head; i != None; i = l.slots[i].next {
			if q := &l.slots[i]; q.class == p.class && q.seq < p.seq {
				return
			}
		}
	}
	o := &s.oldest[p.class]
	switch {
	case l.slots[s.again[p.class].head].seq < p.seq:
	case o.seq != p.seq:
		o.seq, o.since = p.seq, p.sentAt
	case p.sentAt-o.since >= l.cfg.DeadAfter:
		s.overdue = p.length
		if p.pieces > 0 {
			s.overdue = wire.MinPayload
		}
		l.WakeBy(l.Now)
	}
}

// timeout takes the oldest bundle in flight by way w for lost, and sends the first of the
// lost again, by itself. This provokes an acknowledgement of both ways, which shows what
// else was lost. The first time without an answer is early, and says nothing yet of the path
// and the peer.
func (l *Link) timeout(s *Session, w Way) {
	t := &s.ways[w]
	i, at := l.oldest(s, w)
	for i != None && l.slots[i].seq < s.acked[l.slots[i].class] {
		// The peer has applied it, though it has not named the packet that was sent last.
		// This says nothing against the path, and others may have room now.
		l.landed(s, i)
		t.probed = false
		s.MarkDirty()
		i, at = l.oldest(s, w)
	}
	if t.resendAt = at; at == 0 || at > l.Now {
		return
	}
	probe, patience := !t.probed, s.rtt.Probe()
	t.probed = true
	if probe {
		l.stats.Probes++
	} else {
		l.stats.Timeouts++
		s.liveness.Expired()
		s.rtt.Expired()
	}
	t.resendAt = l.Now + s.rtt.Timeout()
	p := &l.slots[i]
	if p.inDevice {
		return
	}
	if !probe {
		fresh := p.packet > t.cutPacket
		t.cutPacket = t.nextPacket - 1
		s.congestion.Lost(fresh)
	}
	// One more than the window may be in flight, or a closed window would never open.
	l.lose(s, i)
	if w == Joined && !probe {
		l.loseRuns(s, l.Now-patience)
	}
	if i = l.lostDue(s, p.class); i != None {
		l.transmit(s, i)
	} else {
		s.MarkDirty() // it must wait: others may have room now
	}
}

// oldest returns the bundle that was sent first of all bundles in flight by way w that may be
// sent again by now. If there is none, at says when there will be one, or is 0 if
// nothing is in flight.
func (l *Link) oldest(s *Session, w Way) (found int32, at int64) {
	found = None
	for i := s.ways[w].flight.head; i != None; i = l.slots[i].next {
		p := &l.slots[i]
		due := p.sentAt + s.patience(p)
		switch {
		case due > l.Now:
			if found == None && (at == 0 || due < at) {
				at = due
			}
		case found == None || p.firstAt < l.slots[found].firstAt || p.firstAt == l.slots[found].firstAt && p.seq < l.slots[found].seq:
			found, at = i, l.Now
		}
	}
	return found, at
}
