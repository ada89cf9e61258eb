package membership

import (
	"cmp"
	"slices"

	"github.com/xdprma/xdprma/internal/link"
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/wire"
)

// A rank speaks of its own losses alone, and nobody takes a rank for gone because another
// says so. A rank that is told of a loss asks the one that is lost to apply something. If it
// is gone, it does not, and so is lost here too. If it lives, then either the other is
// wrong, which changes nothing, or the two cannot reach each other. The one that is asked
// asks the other in turn. So if they have lost each other, both come to say so.
//
// Of two members of a group that have lost each other one must go. The first of the group
// chooses one, and ends its session with it; and so does each that hears it and the first
// say that they have lost each other. So all that the first keeps have lost the same.

type session = link.Session

// hearing is what a view keeps about a peer that others may have lost.
type hearing struct {
	lost   []int  // ranks that the peer says it has lost
	by     []int  // ranks that say they have lost the peer, which it has yet to be asked about
	asked  uint64 // the bundle of the last question; 0: none
	before bool   // the peer is yet to be told that this rank had an earlier life
}

// TakeGone takes in what a peer says of losses: of its own, or, as a question to this rank,
// of another's loss of it. The class is Rank if it speaks for others, or of no rank.
func (v *View) TakeGone(s *session, r *wire.Record) mpierr.Class {
	g, size := r.Gone(), uint64(v.cfg.Size)
	if uint64(g.By) >= size || g.Rank >= size {
		return mpierr.Rank
	}
	by, rank := int(g.By), int(g.Rank)
	switch {
	case by == s.Rank() && rank == by:
		v.TellGone(rank) // a member was an earlier life of it
	case by == s.Rank():
		v.takeReport(s, rank)
	case by == v.cfg.Rank && rank == s.Rank():
		// It asks for a sign of life, and this rank has applied its question.
	case rank != v.cfg.Rank:
		return mpierr.Rank
	default:
		if v.cfg.Later {
			v.cfg.Member(s).before = true
			s.MarkDirty()
		}
		v.hear(by, by)
	}
	return mpierr.Success
}

// takeReport takes in that the peer of s says it has lost a rank.
func (v *View) takeReport(s *session, rank int) {
	m := v.cfg.Member(s)
	if rank == v.cfg.Rank || slices.Contains(m.lost, rank) {
		return
	}
	m.lost = append(m.lost, rank)
	v.hear(rank, s.Rank())
}

// Hear asks a rank for a sign of life. In the end Heard or Gone says whether it has come.
func (v *View) Hear(rank int) { v.hear(rank, rank) }

// Heard reports whether a rank has given all signs of life that it was asked for.
func (v *View) Heard(rank int) bool {
	s := v.link.Session(rank)
	return s != nil && v.heard(s)
}

// hear asks a rank, which others say they have lost, or which is said to have lost this one,
// for a sign of life. If it is lost here too, the others are told.
func (v *View) hear(rank, by int) {
	if v.reported == nil {
		v.reported = map[int]bool{}
	}
	if v.reported[rank] = true; v.Gone(rank) {
		v.TellGone(rank)
		return
	}
	s, begun := v.link.Meet(rank)
	m := v.cfg.Member(s)
	if !slices.Contains(m.by, by) {
		m.by = append(m.by, by)
	}
	s.MarkDirty()
	if begun {
		v.cfg.Seek(rank)
	}
}

// ask asks s about those that say they have lost it.
func (v *View) ask(m *Member, s *session) bool {
	if m.before {
		if !v.tell(s, v.cfg.Rank, v.cfg.Rank) {
			return false
		}
		m.before = false
	}
	for len(m.by) > 0 {
		by, rank := m.by[0], s.Rank()
		if by == rank { // not the loss of s is asked about, but that of this rank
			rank = v.cfg.Rank
		}
		if !v.tell(s, by, rank) {
			return false
		}
		m.by, m.asked = m.by[1:], v.link.Sequence(s.Begun(link.Request))
	}
	return true
}

// Reported reports whether others say that they have lost a rank, or a rank was said to have
// lost this one.
func (v *View) Reported(rank int) bool { return v.reported[rank] }

// heard reports whether the peer of s has applied all questions about those that say they
// have lost it.
func (v *View) heard(s *session) bool {
	m := v.cfg.Member(s)
	return s.Open() && len(m.by) == 0 && s.Acked(link.Request) > m.asked
}

// Dispute returns a member of a group, which this rank hears, to part with: it and another
// member have lost each other. There may be none. At the first of the group the other may
// be any, and what counts is how many members have lost each, and then their place in the
// group. At the rest the other is the first.
func (v *View) Dispute(group []int) (rank int, found bool) {
	if len(v.reported) == 0 {
		return 0, false
	}
	first := group[0]
	if first != v.cfg.Rank {
		return v.disputed(group, first)
	}
	for _, a := range group[1:] {
		if b, found := v.disputed(group, a); found {
			more := cmp.Or(cmp.Compare(v.losers(group, a), v.losers(group, b)), cmp.Compare(slices.Index(group, a), slices.Index(group, b)))
			if more > 0 {
				return a, true
			}
			return b, true
		}
	}
	return 0, false
}

// disputed returns a member of a group that a and it have lost each other, and that this
// rank hears both.
func (v *View) disputed(group []int, a int) (b int, found bool) {
	for _, b := range v.lostBy(a) {
		if isMember(group, b) && slices.Contains(v.lostBy(b), a) && v.Heard(a) && v.Heard(b) && !v.Gone(b) {
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
