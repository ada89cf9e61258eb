package membership

import (
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/wire"
)

// gone are the ranks that this one has lost: they have failed, or have left the job. It
// knows so itself: its session with the rank has ended, or the launcher has said so. What
// others say of a rank has this one listen for it; see hearing.go.
type gone struct {
	known map[int]bool    // whether the others are told of them
	told  []int           // those that they are told of, oldest first
	died  []*mpierr.Error // of those that have failed, even if they have started again
}

// add takes in that a rank is gone. The others are told at once if some say so already,
// because they may all wait for one that says so.
func (v *View) add(rank int) {
	g := &v.gone
	if g.known == nil {
		g.known = map[int]bool{}
	}
	if _, known := g.known[rank]; known {
		return
	}
	if g.known[rank] = false; v.reported[rank] {
		v.TellGone(rank)
	}
}

// die takes in that a rank has failed.
func (v *View) die(err *mpierr.Error) {
	v.gone.died = append(v.gone.died, err)
	v.add(err.Rank)
}

// Gone reports whether this rank knows another to have failed or left the job.
func (v *View) Gone(rank int) bool {
	_, known := v.gone.known[rank]
	return known
}

// AddGone takes in that a rank without a session is gone.
func (v *View) AddGone(rank int) { v.add(rank) }

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

// TellGone has all ranks that this one has, or will have, a session with told that it has
// lost a rank, and so, from one to the next, all that wait for each other find out.
func (v *View) TellGone(rank int) {
	if v.add(rank); v.gone.known[rank] {
		return
	}
	v.gone.known[rank] = true
	v.gone.told = append(v.gone.told, rank)
	v.serveAll()
}

// passOnGone tells s of ranks that this one has lost.
func (v *View) passOnGone(m *Member, s *session) bool {
	for ; m.toldGone < len(v.gone.told); m.toldGone++ {
		if !v.tell(s, v.cfg.Rank, v.gone.told[m.toldGone]) {
			return false
		}
	}
	return true
}

// tell sends s that a rank has lost another.
func (v *View) tell(s *session, by, rank int) bool {
	return v.passOn(s, wire.Gone{By: uint32(by), Rank: uint64(rank)}.Record())
}
