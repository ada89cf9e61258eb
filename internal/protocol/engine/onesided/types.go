package onesided

import (
	"slices"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// A rank tells each datatype that it communicates with once to each target, which keeps
// it under a small id. The definition travels in an ordered bundle. So does every
// request that uses it, until this rank knows that the definition has been applied: so
// no request waits for it, and none overtakes it. It never travels in a lock's bundle,
// which may wait in the lock's queue while later bundles are applied.

// givenType is a datatype that this rank has defined at a peer, or begins to.
type givenType struct {
	t        *datatype.Type
	id       uint32
	encoding []byte // empty: it is too large to be defined, or was refused
	issued   int    // bytes of encoding sent
	defined  uint64 // the bundle with its end
	lastUse  uint64 // the last bundle with a use
}

// givenTypes are the datatypes that this rank has defined at one peer.
type givenTypes struct {
	byType map[*datatype.Type]*givenType
	byID   []*givenType
	bytes  int // of all encodings
}

// given returns the entry of t at the peer, new if there is none; nil if there is
// no room for it until the peer is done with others.
func (s *Peer) given(t *datatype.Type) *givenType {
	g := s.types
	if g == nil {
		g = &givenTypes{byType: map[*datatype.Type]*givenType{}}
		s.types = g
	}
	if d := g.byType[t]; d != nil {
		return d
	}
	encoding, err := datatype.Encode(t)
	if err != nil {
		encoding = nil
	}
	for len(g.byType) == wire.MaxTypes || g.bytes+len(encoding) > wire.MaxTypeBytes {
		old := s.oldestType()
		if old == nil {
			return nil
		}
		delete(g.byType, old.t)
		g.byID[old.id] = nil
		g.bytes -= len(old.encoding)
	}
	id := slices.Index(g.byID, nil)
	if id < 0 {
		id = len(g.byID)
		g.byID = append(g.byID, nil)
	}
	d := &givenType{t: t, id: uint32(id), encoding: encoding}
	g.byType[t], g.byID[id] = d, d
	g.bytes += len(encoding)
	return d
}

// oldestType returns the datatype that was used longest ago, nil unless the peer
// is done with some: all that used it has been applied, and no refusal of its
// definition is on the way. A lock's bundle counts as applied while it waits for
// the lock.
func (s *Peer) oldestType() *givenType {
	if int32(s.refusalsSeen-s.Told.Heard) < 0 {
		return nil
	}
	for _, a := range s.access {
		if a.lock == locking {
			return nil
		}
	}
	var oldest *givenType
	for _, d := range s.types.byID {
		if d != nil && d.issued == len(d.encoding) && d.lastUse < s.Acked(link.Request) && (oldest == nil || d.lastUse < oldest.lastUse) {
			oldest = d
		}
	}
	return oldest
}

// define issues what has not been issued of d's definition, for access a, and
// reports whether that was all.
func (x *Operations) define(a *Access, d *givenType) bool {
	s := a.session
	for d.issued < len(d.encoding) {
		n := len(d.encoding) - d.issued
		if left := s.Space(link.Request); n > left {
			if n = left; n < minFragment {
				n = min(len(d.encoding)-d.issued, s.MaxPayload()-wire.HeaderLen-wire.RecordLen-7)
			}
		}
		i := s.Room(link.Request, n)
		if i == link.None {
			return false
		}
		r := wire.TypePiece{Window: a.window, Type: d.id, Offset: uint32(d.issued), Last: d.issued+n == len(d.encoding)}.Record()
		copy(x.add(a, i, &r, n, wire.FlagOrdered), d.encoding[d.issued:])
		d.issued += n
		d.defined, d.lastUse = x.link.Sequence(i), x.link.Sequence(i)
	}
	return true
}

// typeRefused has the blocks of a datatype named one by one from now on: the peer
// has no room for it.
func (s *Peer) typeRefused(id uint32) {
	if s.types == nil || int(id) >= len(s.types.byID) || s.types.byID[id] == nil {
		return
	}
	d := s.types.byID[id]
	s.types.bytes -= len(d.encoding)
	d.encoding, d.issued = nil, 0
}

// takenType is a datatype that a peer has defined here, or begins to.
type takenType struct {
	t        *datatype.Type // nil while incomplete
	encoding []byte         // while incomplete
	size     int            // of the encoding
}

// takenTypes are the datatypes that a peer has defined here, by id.
type takenTypes struct {
	list  []takenType
	bytes int // of all encodings
}

// peerType returns the datatype that the peer calls id, or nil.
func (s *Peer) peerType(id uint32) *datatype.Type {
	if s.peerTypes == nil || uint64(id) >= uint64(len(s.peerTypes.list)) {
		return nil
	}
	return s.peerTypes.list[id].t
}

// takeType takes in a piece of a datatype's encoding. Pieces come in order, the
// first of them takes the place of what had the id before. Classes: Type if it is
// no such piece, or the whole is no encoding; Size if the peer defines more than
// it may, NoMem if all peers together do.
func (x *Operations) takeType(s *Peer, r *wire.Record) mpierr.Class {
	piece := r.TypePiece()
	id, offset := piece.Type, int(piece.Offset)
	if id >= wire.MaxTypes {
		return mpierr.Type
	}
	p := s.peerTypes
	if p == nil {
		p = &takenTypes{}
		s.peerTypes = p
	}
	for int(id) >= len(p.list) {
		p.list = append(p.list, takenType{})
	}
	d := &p.list[id]
	class := mpierr.Success
	switch {
	case offset == 0:
		x.dropType(p, d)
	case d.t != nil || offset != d.size:
		return mpierr.Type
	}
	switch n := len(r.Data); {
	case d.size+n > datatype.MaxEncoded || p.bytes+n > wire.MaxTypeBytes:
		class = mpierr.Size
	case x.typeBytes+n > x.cfg.MaxTypeBytes:
		class = mpierr.NoMem
	default:
		d.encoding = append(d.encoding, r.Data...)
		d.size += n
		p.bytes += n
		x.typeBytes += n
	}
	if class == mpierr.Success && piece.Last {
		t, err := datatype.Decode(d.encoding)
		d.t, d.encoding = t, nil
		if err != nil {
			class = mpierr.Type
		} else {
			x.totals.Types++
		}
	}
	if class != mpierr.Success {
		x.totals.TypesRefused++
		x.dropType(p, d)
	}
	return class
}

func (x *Operations) dropType(p *takenTypes, d *takenType) {
	p.bytes -= d.size
	x.typeBytes -= d.size
	*d = takenType{}
}

// dropTypes forgets what a dead peer has defined here, and what was defined there.
func (x *Operations) dropTypes(s *Peer) {
	if s.peerTypes != nil {
		x.typeBytes -= s.peerTypes.bytes
	}
	s.types, s.peerTypes = nil, nil
}
