// Package membership is what one rank knows of the others beyond its own sessions: who
// is gone (gone.go), who may be, as others say (hearing.go), and which contexts are over
// because a member is (revoke.go). It tells the peers what they have yet to hear of that.
// It sends its records over a link. It does not know how a context is used: it calls
// Config.Over when one is revoked.
package membership

import (
	"errors"
	"slices"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// Config holds what a view is told at the start.
type Config struct {
	Rank, Size int    // of this process in the job, and how many ranks that has
	Earlier    uint64 // the incarnation of the last process that had the rank before; 0: there was none
	// Member returns what the view keeps about the peer of a session.
	Member func(*link.Session) *Member
	// Over is told of a context that is revoked, and of the rank that has failed.
	Over func(context uint32, failed int)
}

// View is one rank's knowledge of all others.
type View struct {
	link     *link.Link
	cfg      Config
	gone     gone
	reported map[int]bool // ranks that others say they have lost, or that have lost others
	revoked  revocations
	left     int // peers that have left the job
}

// Member is what a view keeps about the peer of one session.
type Member struct {
	left     *mpierr.Error // nil unless the peer has left
	badly    bool          // it has left because its program has failed
	told     int           // revocations passed on to the peer
	toldGone int           // ranks that are gone, of which it was told
	hearing
}

// New returns a view that passes on what it learns over l.
func New(l *link.Link, cfg Config) *View { return &View{link: l, cfg: cfg} }

var errLeft = errors.New("it has left the job")

// Left returns the error of calls that need the peer, if it has left, in good order or after a
// failure of its program, and will issue nothing more; or nil.
func (m *Member) Left() *mpierr.Error { return m.left }

// Left is Member.Left of the peer of s.
func (v *View) Left(s *link.Session) *mpierr.Error { return v.cfg.Member(s).left }

// TakeLeave takes in that s will issue nothing more, and reports whether that is new. If why is not
// empty, its program has failed, and the rank with it: why says how.
func (v *View) TakeLeave(s *link.Session, why string) bool {
	m := v.cfg.Member(s)
	if m.left != nil {
		return false
	}
	m.left = &mpierr.Error{Op: "session", Class: mpierr.ProcFailed, Rank: s.Rank(), Err: errLeft}
	v.left++
	if m.badly = why != ""; m.badly {
		m.left.Err = errors.New(why)
		v.die(m.left, s.Life())
	} else {
		v.add(s.Rank(), s.Life())
	}
	return true
}

// TakeFailure takes in that s has ended.
func (v *View) TakeFailure(s *link.Session) {
	if s.Unfound() && !v.Reported(s.Rank()) {
		return // others may know where it is
	}
	if v.Left(s) != nil && s.Failure().Err != link.ErrRestarted {
		v.add(s.Rank(), s.Life()) // it had done its part
	} else {
		v.die(s.Failure(), s.Life())
	}
}

// LostMember returns why one of the members is dead, or nil; and if all members but this
// rank have left, that one of these has.
func (v *View) LostMember(members []int) (err, left *mpierr.Error) {
	if len(v.gone.died) == 0 && v.left == 0 {
		return nil, nil
	}
	n, leavers := v.cfg.Size, 0
	if members != nil {
		n = len(members)
	}
	for i := range n {
		rank := i
		if members != nil {
			rank = members[i]
		}
		switch s := v.link.Session(rank); {
		case s == nil:
		case v.cfg.Member(s).badly:
			return v.Left(s), nil
		case v.Left(s) != nil:
			leavers++
			left = v.Left(s)
		case s.Failure() != nil:
			return s.Failure(), nil
		}
	}
	if leavers < n-1 {
		left = nil
	}
	return nil, left
}

// UpToDate reports whether a peer was told, and asked, all that Ready would.
func (v *View) UpToDate(m *Member) bool {
	return len(m.questions) == 0 && m.toldGone == len(v.gone.told) && m.told == len(v.revoked.contexts)
}

// Ready tells s of ranks that are gone, and of revocations, that it has not been told of.
func (v *View) Ready(s *link.Session) {
	m := v.cfg.Member(s)
	if !v.ask(m, s) || !v.passOnGone(m, s) {
		return
	}
	for in := &v.revoked; m.told < len(in.contexts); m.told++ {
		context := in.contexts[m.told]
		if v.Outside(context, s.Rank()) {
			continue
		}
		if !v.passOn(s, wire.Revocation{Context: context, Failed: uint64(in.failed[context])}.Record()) {
			return
		}
	}
}

func (v *View) passOn(s *link.Session, r wire.Record) bool {
	i := s.Room(link.Request, 0)
	if i == link.None {
		s.Stall()
		return false
	}
	v.link.Mark(i, wire.FlagOrdered) // what was sent before can still be received
	v.link.Append(i, &r, 0)
	return true
}

// serveAll has all open sessions served: there is something to pass on.
func (v *View) serveAll() {
	for rank := range v.cfg.Size { // not the map: the same calls give the same frames
		if s := v.link.Session(rank); s != nil && s.Open() {
			s.MarkDirty()
		}
	}
}

func isMember(members []int, rank int) bool { return members == nil || slices.Contains(members, rank) }
