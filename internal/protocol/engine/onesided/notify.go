package onesided

import (
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// A notified operation counts up a counter of the target's window once it has acted there. The
// last request of a put or accumulate does so itself, and one that is answered has a request of
// its own after it. If all of the operation is in one bundle, that is enough. Otherwise the
// bundle of the notification is applied after all before it.
//
// Where this process maps the target's memory, it counts there itself. The target then has
// nothing to receive, so it is roused by a frame if somebody sleeps until that count.

// Counter names a counter of a window. The zero value names none.
type Counter uint32

// CounterAt returns the name of counter i, from 0.
func CounterAt(i int) Counter { return Counter(i) + 1 }

// Index returns the number, from 0, of the counter that c names.
func (c Counter) Index() uint32 { return uint32(c) - 1 }

// roomFor returns how much room a request with n bytes of data asks for: if c is answered and
// notifies, that follows in the same bundle.
func (c *Call) roomFor(n int) int {
	if c.Notify != 0 && c.Code.Fetches() {
		return (n+7)&^7 + wire.RecordLen
	}
	return n
}

// begun notes the bundle of the first request of c.
func (c *Call) begun() {
	if c.Notify != 0 && c.first == 0 {
		c.first = c.Access.lastSeq
	}
}

// notifyWith has the last request of c notify, in bundle i, if c is to and has no answer. It
// returns the flags that the bundle gets.
func (x *Origin) notifyWith(c *Call, r *wire.Record, i int32) uint8 {
	if c.Notify == 0 || c.Code.Fetches() {
		return 0
	}
	r.Flags |= wire.FlagNotify
	r.Token = c.Notify.Index()
	x.link.Prompt(i)
	if c.first != 0 && c.first != x.link.Sequence(i) {
		return wire.FlagAfterAll
	}
	return 0
}

// notified sends what is left of the notification of c, which has been issued otherwise.
func (x *Origin) notified(c *Call) bool {
	return c.Notify == 0 || !c.Code.Fetches() || x.notify(c)
}

// notify sends the notification of a call that is answered, or of one that does nothing else:
// that one comes after all that was issued before.
func (x *Origin) notify(c *Call) bool {
	a := c.Access
	i := x.requestRoom(a, 0)
	if i == link.None {
		return false
	}
	r := wire.Record{Code: wire.CodeNotify, Window: a.window, Token: c.Notify.Index()}
	flags := wire.FlagAfterAll
	if c.first != 0 && c.first == x.link.Sequence(i) {
		r.Flags, flags = wire.FlagIfDone, 0
	}
	if c.Order == OrderAll {
		flags |= wire.FlagOrdered
	}
	x.add(a, i, &r, 0, flags)
	x.link.Prompt(i)
	return true
}

// Count notifies of a call that has acted on w itself, memory which this process maps. It reports
// whether the owner of w is to look for those who wait: see Rouse. It needs no turn.
func (c *Call) Count(w *windows.Window) (awaited bool) {
	return c.Notify != 0 && w.Counters().Count(c.Notify.Index())
}

// Rouse has the target of a look for those who wait there.
func (x *Origin) Rouse(a *Access) {
	if a.session == nil {
		return // this rank looks when the turn ends
	}
	c := Call{Code: wire.CodePing, Access: a}
	if done, _ := x.Issue(&c); !done {
		x.deferCall(&c)
		a.session.Stall()
	}
}

// sendRouse sends what Rouse is to.
func (x *Origin) sendRouse(a *Access) bool {
	i := x.requestRoom(a, 0)
	if i == link.None {
		return false
	}
	x.add(a, i, &wire.Record{Code: wire.CodePing}, 0, 0)
	a.session.MarkDirty()
	return true
}

// countOwn notifies of a call that has acted on this rank's own window.
func (x *Origin) countOwn(c *Call) {
	c.Count(c.Access.ownWindow)
	if c.Notify != 0 && c.Access.checked {
		x.completed(localHolder, c.Access.window, false)
	}
}

// takeNotify counts, unless what the notification is of was refused.
func (x *Target) takeNotify(s *Peer, b *link.Bundle, w *windows.Window, r *wire.Record) {
	if r.Flags&wire.FlagIfDone == 0 || !b.Upper.Denied {
		x.count(s, w, r.Token)
	}
}

// count counts up a counter of w for s. Whoever waits for it looks at the end of this turn. In checking
// mode it ends what s had outstanding on w: the owner may know of it.
func (x *Target) count(s *Peer, w *windows.Window, counter uint32) {
	w.Counters().Count(counter)
	if w.Checker() != nil {
		x.completed(s.ID(), w.ID(), false)
	}
}
