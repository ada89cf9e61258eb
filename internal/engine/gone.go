package engine

import (
	"github.com/xdprma/xdprma/internal/link"
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/wire"
)

// gone are the ranks that this one knows to have failed, or to have left the job: it
// has noticed itself, or another has told it. It is knowledge alone: a session ends when
// its own peer is silent, whatever others say.
type gone struct {
	known map[int]bool    // whether the others are told of them
	told  []int           // those that they are told of, oldest first
	died  []*mpierr.Error // of those that have failed, even if they have started again
}

// add takes in that a rank is gone.
func (g *gone) add(rank int) {
	if g.known == nil {
		g.known = map[int]bool{}
	}
	if _, known := g.known[rank]; !known {
		g.known[rank] = false
	}
}

// die takes in that a rank has failed.
func (g *gone) die(err *mpierr.Error) {
	g.add(err.Rank)
	g.died = append(g.died, err)
}

// among returns why one of the members of a communicator has failed, or nil. One that has
// started again is no member any more.
func (g *gone) among(members []int) *mpierr.Error {
	for _, err := range g.died {
		if isMember(members, err.Rank) {
			return err
		}
	}
	return nil
}

// Gone reports whether this rank knows another, or itself, to have failed or left the job.
func (e *Engine) Gone(rank int) bool {
	_, known := e.gone.known[rank]
	return known
}

// Ended takes in that the process of a rank has ended, as its launcher says: what waits
// for it fails, with the reason why.
func (e *Engine) Ended(now int64, rank int, why error) {
	e.Now = now
	if s := e.Session(rank); s != nil {
		failed := e.Stats.PeersFailed
		if s.Fail(why); s.bye {
			e.Stats.PeersFailed = failed // it has left in good order
		}
	} else if rank >= 0 && rank < e.cfg.Size {
		e.gone.add(rank)
	}
}

// TellGone has a rank known to be gone at all ranks that this one has, or will have, a
// session with, and so, from one to the next, at all that wait for each other.
func (e *Engine) TellGone(now int64, rank int) {
	e.Now = now
	e.tellGone(rank)
}

func (e *Engine) tellGone(rank int) {
	if e.gone.add(rank); e.gone.known[rank] {
		return
	}
	e.gone.known[rank] = true
	e.gone.told = append(e.gone.told, rank)
	e.serveAll()
}

// takeGone takes in that a peer knows a rank to be gone.
func (e *Engine) takeGone(r *wire.Record) mpierr.Class {
	rank := r.Gone().Rank
	if rank >= uint64(e.cfg.Size) {
		return mpierr.Rank
	}
	e.tellGone(int(rank))
	return mpierr.Success
}

// passOn tells s of ranks that are gone, and then of revocations, that it has not been
// told of: so who learns that a context is over knows which of its ranks is gone.
func (e *Engine) passOn(s *Session) {
	for ; s.toldGone < len(e.gone.told); s.toldGone++ {
		if !e.passOnOne(s, wire.Gone{Rank: uint64(e.gone.told[s.toldGone])}.Record()) {
			return
		}
	}
	for in := &e.revoked; s.told < len(in.contexts); s.told++ {
		context := in.contexts[s.told]
		if in.outside(context, s.Rank()) {
			continue
		}
		if !e.passOnOne(s, wire.Revocation{Context: context, Failed: uint64(in.failed[context])}.Record()) {
			return
		}
	}
}

func (e *Engine) passOnOne(s *Session, r wire.Record) bool {
	i := s.Room(link.Request, 0)
	if i == link.None {
		s.Stall()
		return false
	}
	e.appendOrdered(i, &r, 0) // what was sent before can still be received
	return true
}

// serveAll has all open sessions served: there is something to pass on.
func (e *Engine) serveAll() {
	for rank := range e.cfg.Size { // not the map: the same calls give the same frames
		if s := e.Session(rank); s != nil && s.Open() {
			s.MarkDirty()
		}
	}
}
