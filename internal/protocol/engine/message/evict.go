package message

import (
	"cmp"
	"slices"

	"github.com/xdprma/xdprma/mpierr"
)

// Evict ends, with err, receives into memory that is about to be unmapped, and messages
// that are being sent from there. within tells that memory from other.
func (x *Messages) Evict(err *mpierr.Error, within func([]byte) bool) {
	for rank := range x.cfg.Size {
		s := x.peer(rank)
		if s == nil {
			continue
		}
		if r := s.rest.receive; r != nil && within(r.Buffer) {
			s.rest.receive = nil // what is still to come of the message goes nowhere
			s.Watch(-1)
			r.end(err)
		}
	}
	x.endPosted(func(r *Receive) *mpierr.Error {
		if within(r.Buffer) {
			return err
		}
		return nil
	})
	x.evictSends(err, within)
}

// evictSends withdraws the messages whose data lies in the memory. Their receivers may
// have begun to get them, and go on with a copy.
func (x *Messages) evictSends(err *mpierr.Error, within func([]byte) bool) {
	var found []*Sending
	look := func(p *Sending) {
		if p != nil && within(p.Data) {
			found = append(found, p)
		}
	}
	for _, p := range x.offers {
		look(p)
	}
	slices.SortFunc(found, func(p, q *Sending) int { return cmp.Compare(p.id, q.id) })
	for rank := range x.cfg.Size {
		if s := x.peer(rank); s != nil {
			for i := range s.lanes {
				for _, p := range s.lanes[i].sending.All() {
					look(p)
				}
			}
		}
	}
	for _, a := range x.match.arrivals.All() {
		look(a.own)
	}
	for _, p := range found {
		x.Abandon(p, slices.Clone(p.Data))
		p.err = err
	}
}
