package link

import (
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// A path may carry shorter frames than both of its ends do, and lose longer ones without
// a word. So a session begins with the payload that every path carries. The first bundle, of
// either end, that takes up half of that has it send a probe of the payload that it would like. When that is acknowledged, frames may be as long.
// When a long frame is lost again and again, the session goes back to the beginning.

const (
	doubtAfter   = 3 // transmissions of a long frame that were lost
	probeTries   = 3
	probeAfter   = reliable.MaxTimeout
	worthProbing = 32 // bytes
)

// pathLength is what is known of the length of frames that a path carries.
type pathLength struct {
	limit   int // what both ends carry
	most    int // no more passes
	length  int // of the last probe
	packet  uint64
	sentAt  int64
	dueAt   int64 // when it counts as lost, or the next one is due; 0: see pending
	tries   int
	pending bool // there is more to find out
	sought  bool // it was begun
}

// wantLength begins to find out what the path to s carries, if there is a bundle of n bytes that is long
// enough for that to matter.
func (l *Link) wantLength(s *Session, n int) {
	if !s.length.sought && 2*n > s.maxPayload {
		l.seekLength(s)
	}
}

// seekLength begins to find out what the path to s carries.
func (l *Link) seekLength(s *Session) {
	s.length.sought = true
	s.length.most, s.length.tries = s.length.limit, 0
	s.length.length = s.length.limit
	l.probeNext(s)
}

// probeNext has the next probe sent, if it is worth it.
func (l *Link) probeNext(s *Session) {
	r := &s.length
	if r.pending = r.length-s.maxPayload >= worthProbing || r.length == r.limit && r.length > s.maxPayload; !r.pending {
		r.dueAt = 0
		return
	}
	r.dueAt, r.packet = l.Now, 0
	s.MarkDirty()
	l.WakeBy(l.Now)
}

// probe sends a probe that is due. Nothing can be said of one that was not acknowledged
// by a peer that has not been heard since: the next sign of life has it sent again.
func (l *Link) probe(s *Session) {
	r := &s.length
	if r.packet != 0 {
		if !s.liveness.HeardAfter(r.sentAt) {
			r.dueAt = 0
			return
		}
		if r.tries++; r.tries == probeTries {
			r.tries, r.most = 0, r.length-1
			r.length = (s.maxPayload + r.most) / 2 &^ 7
			if l.probeNext(s); !r.pending {
				return
			}
		}
	}
	r.packet, r.dueAt = 0, l.Now+ackDelay
	if l.freeSlots > l.ackReserve {
		i := l.allocSlot()
		clear(l.cfg.Slab.Payload(i)[wire.HeaderLen:r.length])
		due := s.acks
		r.packet, r.sentAt, r.dueAt = l.loose(s, i, r.length, wire.FlagAckNow, 0, Single), l.Now, l.Now+probeAfter
		s.acks = due // the probe may not arrive
	}
	l.WakeBy(r.dueAt)
}

// probed takes in an acknowledgement while there is more to find out.
func (l *Link) probed(s *Session, h *wire.Header) {
	r := &s.length
	switch {
	case r.packet != 0 && h.Flags&wire.FlagOfJoined == 0 && reliable.Has(h.AckLargest, h.AckBits, r.packet):
		s.maxPayload, r.tries = r.length, 0
		r.length = (s.maxPayload + r.most) / 2 &^ 7
		l.probeNext(s)
	case r.dueAt == 0:
		r.packet = 0
		l.probeNext(s)
	}
}

// shrink has frames to s be as short as every path carries, for a long one was lost
// several times, until it is known that longer ones pass.
func (l *Link) shrink(s *Session) {
	s.maxPayload = l.minPayload
	l.seekLength(s)
}

// loose sends the frame of n bytes in slot i, which belongs to no bundle as a whole, and
// returns its packet number.
func (l *Link) loose(s *Session, i int32, n int, flags uint8, order uint32, w Way) uint64 {
	p := slot{flags: flags, packet: s.nextPacket(w), order: order, way: w}
	l.outputOnce(i, l.stamp(s, i, n, wire.KindData, &p), s.path)
	l.out[len(l.out)-1].Way = w
	return p.packet
}
