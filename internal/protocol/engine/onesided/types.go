package onesided

import (
	"slices"

	"github.com/xdprma/xdprma/datatype"
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
	bytes  int      // of all encodings
	ended  []uint32 // ids without a datatype for which the peer is still to be told so
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
		if len(old.encoding) > 0 {
			g.ended = append(g.ended, old.id)
		}
	}
	id := slices.Index(g.byID, nil)
	if id < 0 {
		id = len(g.byID)
		g.byID = append(g.byID, nil)
	}
	if i := slices.Index(g.ended, uint32(id)); i >= 0 {
		g.ended = slices.Delete(g.ended, i, i+1) // the definition that follows tells it
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
// reports whether that was all. Before a definition begins, the peer is told of the ids that
// stand for nothing any more: it counts the bytes of their encodings until then.
func (x *Origin) define(a *Access, d *givenType) bool {
	s := a.session
	for g := s.types; d.issued == 0 && len(d.encoding) > 0 && len(g.ended) > 0; {
		i := s.Room(link.Request, 0)
		if i == link.None {
			return false
		}
		last := len(g.ended) - 1
		r := wire.TypePiece{Window: a.window, Type: g.ended[last]}.Record()
		x.add(a, i, &r, 0, wire.FlagOrdered)
		g.ended = g.ended[:last]
	}
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
