package onesided

import (
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// takenType is a datatype that a peer has defined here, or begins to.
type takenType struct {
	t        *datatype.Type // nil while incomplete
	encoding []byte         // while incomplete
	size     int            // of the encoding
}

// takenTypes are the datatypes that a peer has defined here, by id.
type takenTypes struct {
	list      []takenType
	bytes     int   // of all encodings
	decodedBy int64 // when all that has been decoded would have been, at the rate of decodeTime
}

// To decode an encoding takes far longer than to receive it, and others wait meanwhile. So each peer has
// a rate at which its datatypes are decoded, beyond as many as it may have defined at once. That leaves
// most of the time to others where encodings are of the usual kinds, which take 40 to 100 ns a byte. The costliest
// take all of the 250.
const (
	decodeTime  int64 = 250 // ns for each byte
	decodeAhead       = decodeTime * wire.MaxTypeBytes
)

// decodes takes in that n bytes are to be decoded now. If it is too early, it returns false and when they
// may be.
func (p *takenTypes) decodes(n int, now int64) (at int64, ok bool) {
	if at := p.decodedBy - decodeAhead; at > now {
		return at, false
	}
	p.decodedBy = max(p.decodedBy, now) + decodeTime*int64(n)
	return now, true
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
// it may, NoMem if all peers together do. It is stuck while the
// peer has had too much decoded.
func (x *Target) takeType(s *Peer, r *wire.Record) mpierr.Class {
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
		if piece.Last {
			if at, ok := p.decodes(d.size+n, x.link.Now); !ok {
				x.link.WakeBy(at)
				return stuck
			}
		}
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

func (x *Target) dropType(p *takenTypes, d *takenType) {
	p.bytes -= d.size
	x.typeBytes -= d.size
	*d = takenType{}
}
