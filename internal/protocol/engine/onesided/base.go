package onesided

import (
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

// base is what the parts of the operations share: it knows none of them.
type base struct {
	link   *link.Link
	cfg    Config
	totals *Totals
	turn   uint64 // bundles of requests, and local calls, that have acted
}

// Windows returns the table of the windows that this rank exposes.
func (x *base) Windows() *window.Table { return x.cfg.Windows }

// peer returns what the operations keep about a rank, or nil if there is no session with it.
func (x *base) peer(rank int) *Peer {
	if s := x.link.Session(rank); s != nil {
		return x.cfg.Peer(s)
	}
	return nil
}

// windowFor returns the window that a request of s means, or nil and why it is refused: no
// rank outside the window's group may do anything to it, nor a later life of a member.
func (x *base) windowFor(s *Peer, id uint32) (*window.Window, mpierr.Class) {
	w := x.cfg.Windows.Lookup(id)
	switch {
	case w == nil:
		return nil, mpierr.Win
	case !w.Admits(s.Rank(), s.Life()):
		x.totals.Outsiders++
		return nil, mpierr.Group
	}
	return w, mpierr.Success
}

// respond sends an answer without data.
func (x *base) respond(s *Peer, r *wire.Record) bool {
	i, _ := s.Reserve(r, 0)
	if i == link.None {
		return false
	}
	x.link.Commit(i, 0)
	return true
}

// Ordered lets a window's checker forget everything: all that has been issued to the
// window is ordered before all that will be.
func (x *base) Ordered(id uint32) {
	if w := x.cfg.Windows.Lookup(id); w != nil {
		w.Checker().EndAll()
	}
}

// completed lets the window's checker forget what an origin has completed.
func (x *base) completed(holder uint64, id uint32, onlyReads bool) {
	w := x.cfg.Windows.Lookup(id)
	switch {
	case w == nil:
	case onlyReads:
		w.Checker().EndReads(holder)
	default:
		w.Checker().End(holder)
	}
}

// forget lets the checkers of all windows forget s, which is dead.
func (x *base) forget(s *Peer) {
	x.cfg.Windows.All(func(w *window.Window) { w.Checker().End(s.ID()) })
}

// note tells a window's checker of an access of n bytes.
func (x *base) note(c *window.Checker, holder uint64, a window.Access, start uint64, n int, remember bool) {
	before := c.Total()
	c.Turn(x.turn)
	for _, k := range c.Note(holder, a, start, n, remember) {
		if x.cfg.OnConflict != nil {
			x.cfg.OnConflict(k)
		}
	}
	x.totals.Conflicts += uint64(c.Total() - before)
}
