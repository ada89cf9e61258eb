package membership

import (
	"cmp"
	"slices"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// A rank speaks of its own losses alone, and nobody takes a rank for gone because another
// says so. A rank that is told of a loss asks the one that is lost to apply something. If it
// is gone, it does not, and so is lost here too. If it lives, then either the other is
// wrong, which changes nothing, or the two cannot reach each other. The one that is asked
// asks the other in turn. So if they have lost each other, both come to say so.
//
// Of two members of a group that have lost each other one must go. The lowest rank of the
// group chooses one, and ends its session with it; and so does each that hears it and the
// lowest say that they have lost each other. So all that the lowest keeps have lost the same.

type session = link.Session

// hearing is what a view keeps about a peer that others may have lost.
type hearing struct {
	lost      []int       // ranks that the peer says it has lost
	questions []wire.Gone // that the peer is yet to be asked
	asked     uint64      // the bundle of the last question; 0: none
}

// TakeGone takes in what a peer says of losses: of its own, or, as a question to this rank,
// of another's loss of it. The class is Rank if it speaks for others, or of no rank.
func (v *View) TakeGone(s *session, r *wire.Record) mpierr.Class {
	g := r.Gone()
	by, rank, from, self := int(g.By), int(g.Rank), s.Rank(), v.cfg.Rank
	switch {
	case max(by, rank) >= v.cfg.Size:
		return mpierr.Rank
	case by == from && rank == from: // an earlier life of the peer has been a member
		v.add(from, g.Life)
		v.TellGone(from)
	case by == from:
		v.takeReport(s, rank, g.Life)
	case by == self && rank == from:
		// It asks for a sign of life, and this rank has applied its question.
	case rank == self && by != self:
		if g.Life != 0 && g.Life <= v.cfg.Earlier {
			v.add(self, v.cfg.Earlier)
			v.TellGone(self)
		}
		v.hear(by, wire.Gone{By: g.By, Rank: g.Rank})
	default:
		return mpierr.Rank
	}
	return mpierr.Success
}

// takeReport takes in that the peer of s says it has lost a life of a rank.
func (v *View) takeReport(s *session, rank int, life uint64) {
	m := v.cfg.Member(s)
	if rank == v.cfg.Rank || slices.Contains(m.lost, rank) {
		return
	}
	m.lost = append(m.lost, rank)
	v.hear(rank, wire.Gone{By: uint32(s.Rank()), Rank: uint32(rank), Life: life})
}

// hear asks a rank, which others say they have lost, or which is said to have lost this one,
// for a sign of life. If it is lost here too, the others are told.
func (v *View) hear(rank int, question wire.Gone) {
	if rank == v.cfg.Rank {
		return
	}
	if v.reported == nil {
		v.reported = map[int]bool{}
	}
	if v.reported[rank] = true; v.Gone(rank) {
		v.TellGone(rank)
		return
	}
	s := v.link.Connect(rank)
	m := v.cfg.Member(s)
	if !slices.Contains(m.questions, question) {
		m.questions = append(m.questions, question)
	}
	s.MarkDirty()
}

// ask asks s about those that say they have lost it, or whether it has lost this rank.
func (v *View) ask(m *Member, s *session) bool {
	for ; len(m.questions) > 0; m.questions = m.questions[1:] {
		if !v.passOn(s, m.questions[0].Record()) {
			return false
		}
		m.asked = v.link.Sequence(s.Begun(link.Request))
	}
	return true
}

// Reported reports whether others say that they have lost a rank, or a rank was said to have
// lost this one.
func (v *View) Reported(rank int) bool { return v.reported[rank] }

// heard reports whether a rank has applied all that it was asked.
func (v *View) heard(rank int) bool {
	s := v.link.Session(rank)
	if s == nil {
		return false
	}
	m := v.cfg.Member(s)
	return s.Open() && len(m.questions) == 0 && s.Acked(link.Request) > m.asked
}

// Dispute returns a member of a group, whose ranks ascend, to part with, and whether there is
// one: it and another have lost each other, and this rank hears both. At the lowest rank
// the other may be any. The one that more members have lost goes, and of two alike the
// higher: a loss concerns the whole job, so that groups in another order choose the same.
// At the rest the other is the lowest.
func (v *View) Dispute(group []int) (rank int, found bool) {
	if len(v.reported) == 0 {
		return 0, false
	}
	if lowest := group[0]; lowest != v.cfg.Rank {
		return v.disputed(group, lowest)
	}
	for _, a := range group[1:] {
		if b, found := v.disputed(group, a); found {
			if cmp.Or(cmp.Compare(v.losers(group, a), v.losers(group, b)), cmp.Compare(a, b)) > 0 {
				return a, true
			}
			return b, true
		}
	}
	return 0, false
}

// disputed returns a member of a group that has lost a, as a has lost it, if this rank hears
// both.
func (v *View) disputed(group []int, a int) (b int, found bool) {
	for _, b := range v.lostBy(a) {
		if isMember(group, b) && slices.Contains(v.lostBy(b), a) && v.heard(a) && v.heard(b) && !v.Gone(a) && !v.Gone(b) {
			return b, true
		}
	}
	return 0, false
}

// losers returns how many members of a group say that they have lost a rank.
func (v *View) losers(group []int, rank int) (n int) {
	for _, w := range group {
		if slices.Contains(v.lostBy(w), rank) {
			n++
		}
	}
	return n
}

// lostBy returns the ranks that a rank says it has lost.
func (v *View) lostBy(rank int) []int {
	if s := v.link.Session(rank); s != nil {
		return v.cfg.Member(s).lost
	}
	return nil
}
