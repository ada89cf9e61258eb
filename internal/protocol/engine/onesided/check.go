package onesided

import (
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

// Checking mode: the target remembers what each origin has accessed in its window
// until the origin completes it, and reports accesses that conflict (section
// 11.7). The end of a lock's epoch it sees itself; of flushes the origin tells it
// with a CodeMark, behind a fence, and the flush waits until that has been applied.

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
func (x *Operations) wantMark(a *Access, m mark) {
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
func (x *Operations) sendMarks(s *Peer) {
	rest := s.marks[:0]
	for _, a := range s.marks {
		if !x.sendMark(a) {
			rest = append(rest, a)
		}
	}
	clear(s.marks[len(rest):])
	s.marks = rest
}

func (x *Operations) sendMark(a *Access) bool {
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
	x.link.Mark(i, wire.FlagAckNow|wire.FlagFence)
	seq := x.link.Sequence(i)
	a.mark, a.markSeq, a.lastSeq = markNone, seq, seq
	return true
}

// observe tells a window's checker of a request that has been applied.
func (x *Operations) observe(s *Peer, c *window.Checker, r *wire.Record) {
	a, n, remember := accessOf(s, r, r.Data)
	x.note(c, s.ID(), a, r.Disp, n, remember)
}

// observeTyped is observe for a request with a datatype, block by block.
func (x *Operations) observeTyped(s *Peer, c *window.Checker, r *wire.Record) {
	var where wire.Layout
	data, _ := where.Get(r.Data)
	a, n, remember := accessOf(s, r, data)
	it := &x.walks.bytes
	it.Reset(s.peerType(where.Type), int(where.Count))
	it.SeekPacked(int64(where.Position))
	c.Turn(x.turn)
	for n > 0 && it.Remaining() > 0 && !c.Spent() {
		off, block, _, _ := it.Next(n)
		x.note(c, s.ID(), a, r.Disp+uint64(off), block, remember)
		n -= block
	}
}

// accessOf returns what a request does with how many bytes, and whether the origin
// will tell when it has completed. data is that of the record, without a layout.
func accessOf(s *Peer, r *wire.Record, data []byte) (a window.Access, n int, remember bool) {
	a, n = window.Access{Origin: s.Rank(), Call: callOf(r.Code)}, len(data)
	if a.Call >= window.CallAccumulate {
		a.Op, a.Basic = datatype.Op(r.Op), datatype.Basic(r.Basic)
	}
	remember = !a.Reads() || r.Flags&wire.FlagFollowed == 0
	switch r.Code {
	case wire.CodeGet, wire.CodeGetAccumulate:
		_, want := wire.Part(data)
		n = int(want)
	case wire.CodeCompareSwap:
		n /= 2
	}
	return a, n, remember
}

// followed returns the flag of a request whose completion the caller sees by its
// Request, and that nobody else tells the target of.
func (c *Call) followed() uint8 {
	if !c.Access.checked || c.Request == nil || c.Code != wire.CodeGet && (c.Code != wire.CodeGetAccumulate || c.Op != datatype.NoOp) {
		return 0
	}
	return wire.FlagFollowed
}

// observeLocal is observe for n bytes of a call on this rank's own window.
func (x *Operations) observeLocal(c *Call, disp uint64, n int) {
	a := window.Access{Origin: x.cfg.Rank, Call: callOf(c.Code)}
	if a.Call >= window.CallAccumulate {
		a.Op, a.Basic = c.Op, c.Basic
	}
	remember := !a.Reads() || c.Request == nil
	x.note(c.Access.ownWindow.Checker(), localHolder, a, disp, n, remember)
}

func callOf(code wire.Code) window.CallKind {
	switch code {
	case wire.CodeGet:
		return window.CallGet
	case wire.CodeAccumulate:
		return window.CallAccumulate
	case wire.CodeGetAccumulate:
		return window.CallGetAccumulate
	case wire.CodeCompareSwap:
		return window.CallCompareSwap
	}
	return window.CallPut
}
