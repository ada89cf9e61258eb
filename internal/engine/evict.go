package engine

import (
	"cmp"
	"errors"
	"slices"

	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/window"
)

var errEvicted = errors.New("the memory has been freed with the window that it belongs to")

// Evict ends everything that would read or write the given memory later, which is about to
// be unmapped: results of calls on any window, receives, and messages that are being sent.
// They end with an error of class Win. The results are looked for by address, because no
// window knows which calls on other windows bring something into its memory.
func (e *Engine) Evict(now int64, mem []byte) {
	e.Now = now
	err := &mpierr.Error{Op: "window free", Class: mpierr.Win, Rank: mpierr.NoRank, Err: errEvicted}
	within := func(b []byte) bool { return overlap(b, mem) }
	for _, a := range e.own {
		e.evictCalls(a, err, within)
	}
	for rank := range e.cfg.Size {
		s := e.Session(rank)
		if s == nil {
			continue
		}
		s.deferring = slices.DeleteFunc(s.deferring, func(a *Access) bool {
			e.evictCalls(a, err, within)
			return a.queue.empty()
		})
		if r := s.rest.receive; r != nil && within(r.Buf) {
			s.rest.receive = nil // what is still to come of the message goes nowhere
			s.Watch(-1)
			r.end(err)
		}
	}
	e.endOps(err, func(o *op) bool { return within(o.result) || o.scatter != nil && within(o.scatter.mem) })
	e.endPosted(func(r *Receive) *mpierr.Error {
		if within(r.Buf) {
			return err
		}
		return nil
	})
	e.evictSends(err, within)
}

// evictCalls fails the calls that a keeps back and whose result lies in the memory.
func (e *Engine) evictCalls(a *Access, err *mpierr.Error, within func([]byte) bool) {
	for i := a.queue.len() - 1; i >= 0; i-- {
		d := a.queue.at(i)
		if !within(d.Result) && (d.Typed == nil || !within(d.Typed.result.mem)) {
			continue
		}
		if d.Request == nil {
			a.fail(err)
		}
		e.dropCall(a, i, err)
	}
}

// evictSends withdraws the messages whose data lies in the memory. Their receivers may
// have begun to get them, and go on with a copy.
func (e *Engine) evictSends(err *mpierr.Error, within func([]byte) bool) {
	var found []*Sending
	look := func(p *Sending) {
		if p != nil && within(p.Data) {
			found = append(found, p)
		}
	}
	for _, p := range e.offers {
		look(p)
	}
	slices.SortFunc(found, func(p, q *Sending) int { return cmp.Compare(p.id, q.id) })
	for rank := range e.cfg.Size {
		if s := e.Session(rank); s != nil {
			for i := range s.lanes {
				for _, p := range s.lanes[i].sending.all() {
					look(p)
				}
			}
		}
	}
	for _, a := range e.match.arrivals.all() {
		look(a.own)
	}
	for _, p := range found {
		e.Abandon(e.Now, p, slices.Clone(p.Data))
		p.err = err
	}
}

// overlap reports whether a and b have bytes in common.
func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := window.Address(a), window.Address(b)
	return x < y+uint64(len(b)) && y < x+uint64(len(a))
}
