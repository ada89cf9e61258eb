package message

import (
	"slices"

	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// rest is what is still to come of the last message of a session: one that takes several
// frames, of which no other message stands between. It goes to a message that was kept,
// to a receive, or nowhere.
type rest struct {
	missing int // bytes
	kept    *arrival
	receive *Receive
}

// begin takes in that so many bytes of a message follow, and reports whether they may.
func (t *rest) begin(a *arrival, follow uint64) bool {
	if t.missing > 0 || follow > MaxWhole || follow > 0 && a.length == 0 || a.length+int(follow) > MaxWhole {
		return false
	}
	t.missing = int(follow)
	a.length += t.missing
	a.cost += t.missing
	return true
}

// coming reports whether more of a, which was sent, is to come.
func (a *arrival) coming() bool { return len(a.data) > 0 && len(a.data) < a.length }

// restTo lets r have what is still to come from s.
func (x *Messages) restTo(s *Peer, r *Receive) {
	r.phase = receivePulling
	s.rest.receive = r
	s.Watch(1)
	s.Await()
}

// TakeRest takes in more of the last message of s.
func (x *Messages) TakeRest(s *Peer, r *wire.Record) mpierr.Class {
	t := &s.rest
	if len(r.Data) == 0 || len(r.Data) > t.missing {
		return mpierr.Intern
	}
	switch {
	case t.kept != nil:
		t.kept.data = append(t.kept.data, r.Data...)
	case t.receive != nil:
		if at := t.receive.Length - t.missing; at < len(t.receive.Buffer) {
			copy(t.receive.Buffer[at:], r.Data)
		}
	}
	if t.missing -= len(r.Data); t.missing == 0 {
		x.endRest(s, nil)
	}
	return mpierr.Success
}

// endRest ends the last message of s: it is here, or, with an error, nothing more of it
// will come.
func (x *Messages) endRest(s *Peer, why *mpierr.Error) {
	t := s.rest
	s.rest = rest{}
	switch {
	case t.receive != nil:
		s.Watch(-1)
		t.receive.end(why)
	case t.kept != nil && why != nil:
		i := slices.IndexFunc(x.match.arrivals.All(), func(a *arrival) bool { return a == t.kept })
		x.paid(x.match.remove(i))
	}
}
