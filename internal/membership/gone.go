package membership

import (
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

// Gone reports whether this rank knows another, or itself, to have failed or left the job.
func (v *View) Gone(rank int) bool {
	_, known := v.gone.known[rank]
	return known
}

// AddGone takes in that a rank without a session is gone.
func (v *View) AddGone(rank int) { v.gone.add(rank) }

// Culprit returns why one of the members of a communicator has failed, or nil. One that
// has started again is no member any more.
func (v *View) Culprit(members []int) *mpierr.Error {
	for _, err := range v.gone.died {
		if isMember(members, err.Rank) {
			return err
		}
	}
	return nil
}

// TellGone has a rank known to be gone at all ranks that this one has, or will have, a
// session with, and so, from one to the next, at all that wait for each other.
func (v *View) TellGone(rank int) {
	v.tellGone(rank)
}

func (v *View) tellGone(rank int) {
	if v.gone.add(rank); v.gone.known[rank] {
		return
	}
	v.gone.known[rank] = true
	v.gone.told = append(v.gone.told, rank)
	v.serveAll()
}

// TakeGone takes in that a peer knows a rank to be gone.
func (v *View) TakeGone(r *wire.Record) mpierr.Class {
	rank := r.Gone().Rank
	if rank >= uint64(v.cfg.Size) {
		return mpierr.Rank
	}
	v.tellGone(int(rank))
	return mpierr.Success
}
