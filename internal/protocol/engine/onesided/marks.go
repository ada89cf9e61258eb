package onesided

import (
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// mark is what a CodeMark tells.
type mark uint8

const (
	markNone  mark = iota
	markReads      // what changes nothing has completed at the origin
	markAll        // everything has completed
)

// SetChecked says whether the window is in checking mode at the target.
func (a *Access) SetChecked(on bool) { a.checked = on }

// marked reports whether the target has been told of what was flushed.
func (a *Access) marked() bool {
	return a.mark == markNone && a.markSeq < a.session.Acked(link.Request)
}

// wantMark has the target told, at the next Tick that finds room.
func (x *Origin) wantMark(a *Access, m mark) {
	s := a.session
	switch {
	case s == nil && !a.queue.Empty():
		a.mark = max(a.mark, m) // issueQueue goes on
		return
	case s == nil:
		x.completed(localHolder, a.window, m == markReads)
		return
	case s.Dead():
		return
	}
	if a.mark == markNone {
		s.marks = append(s.marks, a)
	}
	a.mark = max(a.mark, m)
	s.MarkDirty()
}

// sendMarks tells the peer what this rank has completed, as far as there is room
// and no lock is waited for.
func (x *Origin) sendMarks(s *Peer) {
	rest := s.marks[:0]
	for _, a := range s.marks {
		if !x.sendMark(a) {
			rest = append(rest, a)
		}
	}
	clear(s.marks[len(rest):])
	s.marks = rest
}

func (x *Origin) sendMark(a *Access) bool {
	if a.keepsBack() || !a.queue.Empty() {
		return false
	}
	i := x.requestRoom(a, 0)
	if i == link.None {
		a.session.Stall()
		return false
	}
	r := wire.Record{Code: wire.CodeMark, Window: a.window}
	if a.mark == markReads {
		r.Flags = wire.FlagReads
	}
	x.link.Append(i, &r, 0)
	x.link.Mark(i, wire.FlagAckNow|wire.FlagAfterAll)
	seq := x.link.Sequence(i)
	a.mark, a.markSeq, a.lastSeq = markNone, seq, seq
	return true
}

// checkFlags returns the flags of c's records that a checker goes by. The caller of one that is
// followed sees its completion by its Request, and nobody else tells the target of that.
func (c *Call) checkFlags() (flags uint8) {
	if !c.Access.checked {
		return 0
	}
	if c.Order == OrderAll {
		flags = wire.FlagInOrder
	}
	if c.Request != nil && (c.Code == wire.CodeGet || c.Code == wire.CodeGetAccumulate && c.Op == datatype.NoOp) {
		flags |= wire.FlagFollowed
	}
	return flags
}
