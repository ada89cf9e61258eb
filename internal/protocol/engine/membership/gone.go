package membership

import (
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// gone are the ranks that this one has lost: they have failed, or have left the job. It
// knows so itself: its session with the rank has ended, or the launcher has said so. What
// others say of a rank has this one listen for it; see hearing.go.
type gone struct {
	known map[int]*loss
	told  []*loss         // those that the others are told of, oldest first
	died  []*mpierr.Error // of those that have failed, even if they have started again
}

// loss is that a rank is gone.
type loss struct {
	rank int
	life uint64 // the incarnation that is; 0: not known
	told bool   // the others are told of it
}

// add takes in that a life of a rank is gone. The others are told at once if some say so
// already, because they may all wait for one that says so.
func (v *View) add(rank int, life uint64) {
	g := &v.gone
	if g.known == nil {
		g.known = map[int]*loss{}
	}
	if g.known[rank] != nil {
		return
	}
	if g.known[rank] = (&loss{rank: rank, life: life}); v.reported[rank] {
		v.TellGone(rank)
	}
}

// die takes in that a life of a rank has failed.
func (v *View) die(err *mpierr.Error, life uint64) {
	v.gone.died = append(v.gone.died, err)
	v.add(err.Rank, life)
}

// Gone reports whether this rank knows another to have failed or left the job, or itself to
// have the place of a process that has.
func (v *View) Gone(rank int) bool { return v.gone.known[rank] != nil }

// AddGone takes in that a rank without a session is gone.
func (v *View) AddGone(rank int) { v.add(rank, 0) }

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
	v.add(rank, 0)
	l := v.gone.known[rank]
	if l.told {
		return
	}
	l.told = true
	v.gone.told = append(v.gone.told, l)
	v.serveAll()
}

// passOnGone tells s of ranks that this one has lost.
func (v *View) passOnGone(m *Member, s *session) bool {
	for ; m.toldGone < len(v.gone.told); m.toldGone++ {
		l := v.gone.told[m.toldGone]
		if !v.passOn(s, wire.Gone{By: uint32(v.cfg.Rank), Rank: uint32(l.rank), Life: l.life}.Record()) {
			return false
		}
	}
	return true
}
