package link

import (
	"slices"

	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// A bundle keeps its sequence and its records for life: the peer may have it although
// its acknowledgement was lost. So one that turns out to be too long for the path is
// sent in pieces, which the peer joins before it looks at them.

const (
	pieceLen     = wire.MinPayload - wire.HeaderLen - wire.PieceLen - secure.TrailerLen // bytes of a bundle's records, but for the last piece
	maxJoining   = 8                                                                    // bundles of a session of which pieces are kept
	maxPieces    = 64
	maxJoinedLen = maxPieces * pieceLen
)

// sendPieces sends bundle i in pieces with successive packet numbers. A piece for which
// there is no slot is lost.
func (l *Link) sendPieces(s *Session, i int32) {
	p := &l.slots[i]
	records := l.cfg.Slab.Payload(i)[wire.HeaderLen:p.length]
	if p.way != Single {
		p.first = 0
	}
	p.way, p.packet, p.pieces = Single, s.ways[Single].nextPacket, int32((len(records)-1)/pieceLen)
	for at := 0; at < len(records); at += pieceLen {
		if l.freeSlots <= l.ackReserve {
			s.nextPacket(Single)
			continue
		}
		j := l.allocSlot()
		part := records[at:min(at+pieceLen, len(records))]
		b := l.cfg.Slab.Payload(j)
		wire.PieceOf{Sequence: s.remoteSeq(p), Offset: uint32(at), Total: uint32(len(records))}.Put(b[wire.HeaderLen:])
		copy(b[wire.HeaderLen+wire.PieceLen:], part)
		l.loose(s, j, wire.HeaderLen+wire.PieceLen+len(part), p.flags, p.order, Single)
	}
}

// joining is a bundle of which some pieces have arrived.
type joining struct {
	class   Class
	seq     uint64
	got     uint64 // bit i: piece i
	records []byte
}

// join takes in a piece of a bundle of s. It returns the bundle's records when that was
// the last piece that was missing, and false if the piece makes no sense.
func (l *Link) join(s *Session, c Class, w wire.PieceOf, part []byte) (records []byte, ok bool) {
	total, at := int(w.Total), int(w.Offset)
	if total > min(l.cfg.Slab.MaxPayload-wire.HeaderLen, maxJoinedLen) || at%pieceLen != 0 || at >= total || len(part) != min(pieceLen, total-at) {
		return nil, false
	}
	k := slices.IndexFunc(s.joining, func(b joining) bool { return b.seq == w.Sequence && b.class == c })
	if k < 0 {
		if len(s.joining) == maxJoining { // the oldest comes again
			s.joining = slices.Delete(s.joining, 0, 1)
		}
		s.joining = append(s.joining, joining{class: c, seq: w.Sequence, records: make([]byte, total)})
		k = len(s.joining) - 1
	}
	j := &s.joining[k]
	if len(j.records) != total {
		return nil, false
	}
	copy(j.records[at:], part)
	j.got |= 1 << (at / pieceLen)
	if j.got != 1<<((total+pieceLen-1)/pieceLen)-1 {
		return nil, true
	}
	records = j.records
	s.joining = slices.DeleteFunc(s.joining, func(b joining) bool { return b.seq == w.Sequence && b.class == c })
	return records, true
}
