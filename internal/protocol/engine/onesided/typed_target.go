package onesided

import (
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// walks are iterators for whoever needs one for the length of a call: they are
// large, and an engine runs one call at a time.
type walks struct {
	bytes datatype.Iter
	whole datatype.Iter
}

// applyTyped lets a request take effect on memory that a datatype describes.
func (x *Target) applyTyped(s *Peer, b *link.Bundle, w *windows.Window, r *wire.Record) mpierr.Class {
	var where wire.Layout
	data, ok := where.Get(r.Data)
	if !ok {
		return x.malformed()
	}
	t := s.peerType(where.Type)
	if t == nil {
		return mpierr.Type
	}
	l := windows.Layout{Disp: r.Disp, Type: t, Count: int(where.Count)}
	op, basic := datatype.Op(r.Op), datatype.Basic(r.Basic)
	switch r.Code {
	case wire.CodePut:
		return l.Put(w, &x.walks.bytes, where.Position, data)
	case wire.CodeAccumulate:
		return l.Accumulate(w, &x.walks.whole, op, basic, where.Position, data)
	case wire.CodeGet:
		return x.applyTypedGet(b, w, r, &l, where.Position, data)
	case wire.CodeGetAccumulate:
		if len(data) < wire.PartLen {
			return mpierr.Intern
		}
		offset, want := wire.Part(data)
		if wire.HeaderLen+wire.RecordSize(int(min(want, 1<<30))) > s.Limit() {
			return mpierr.Size
		}
		a := wire.Record{Code: wire.CodeResult, Token: r.Token, Disp: uint64(offset)}
		i, result := s.Reserve(&a, int(want))
		if i == link.None {
			return stuck
		}
		class := l.GetAccumulate(w, &x.walks.whole, op, basic, where.Position, data[wire.PartLen:], result)
		if class == mpierr.Success {
			x.link.Commit(i, int(want))
		}
		return class
	}
	return x.malformed()
}

// applyTypedGet is applyGet for a layout. No element is cut, so that each is read
// whole.
func (x *Target) applyTypedGet(b *link.Bundle, w *windows.Window, r *wire.Record, l *windows.Layout, position uint64, data []byte) mpierr.Class {
	s := b.Session
	if len(data) != wire.PartLen {
		return mpierr.Intern
	}
	offset, want := wire.Part(data)
	if want > wire.MaxPart {
		return mpierr.Size
	}
	it, whole := &x.walks.bytes, &x.walks.whole
	if class := l.Check(w, it, position, int(want)); class != mpierr.Success {
		return class
	}
	whole.ResetElements(l.Type, l.Count)
	for {
		left, from := int(want-b.Done), position+uint64(b.Done)
		n := min(left, s.Space(link.Response))
		if n < left && n < minFragment {
			s.CloseBundle(link.Response)
			n = min(left, s.Space(link.Response))
		}
		if n < left {
			n = cut(l.Type, whole, int64(from), n)
		}
		a := wire.Record{Code: wire.CodeResult, Token: r.Token, Disp: uint64(offset) + uint64(b.Done)}
		i, data := s.Reserve(&a, n)
		if i == link.None {
			return stuck
		}
		if class := l.Get(w, it, from, data); class != mpierr.Success {
			return class
		}
		x.link.Commit(i, n)
		b.Done += uint32(n)
		if b.Done == want {
			return mpierr.Success
		}
	}
}

// cut returns how many of the n bytes of packed data after at can be taken without
// taking a part of an element. whole walks over the elements of entries of t.
func cut(t *datatype.Type, whole *datatype.Iter, at int64, n int) int {
	if b := t.Basic(); b != 0 {
		return n - int((at+int64(n))%int64(b.Size()))
	}
	for range 16 { // no element is longer
		if whole.SeekPacked(at + int64(n)) {
			break
		}
		n--
	}
	return n
}
