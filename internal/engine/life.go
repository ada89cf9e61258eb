package engine

import (
	"github.com/xdprma/xdprma/internal/wire"
)

// Watch starts or ends (delta 1 or -1) a wait for something that only the peer
// can bring about, so that its death is noticed.
func (e *Engine) Watch(now int64, s *Session, delta int32) {
	e.now = now
	s.watch += delta
	if s.watch < 0 {
		panic("engine: a watch ended that never began")
	}
	if s.watch > 0 {
		e.await(s)
	}
}

// Expect is Watch for a caller that does not wait but asks again and again: it begins
// anew each time, and ends with the peer's next sign of life.
func (e *Engine) Expect(now int64, s *Session) {
	e.now = now
	e.reach(s)
}

// await sees to it that s, which now owes a sign of life, is asked for one.
func (e *Engine) await(s *Session) {
	if s.state == dead {
		return
	}
	e.markActive(s)
	if s.path == NoPath {
		return
	}
	if s.pingAt == 0 {
		s.waiting, s.expired = e.now, 0
		s.pingAt = e.now + e.pingAfter(s)
	}
	e.wakeBy(s.pingAt)
}

// holds reports whether something is on its way to s, or waits to be sent.
func (s *Session) holds() bool { return s.held[request]+s.held[response] > 0 }

// Bye tells every living peer that this rank will issue nothing more, but those that
// have yet to hear of it and that it has nothing for.
func (e *Engine) Bye(now int64) {
	e.now = now
	for rank := range e.cfg.Size { // not the map: the same calls give the same frames
		s := e.byRank[rank]
		if s == nil || s.state == dead || s.state == dialing && !s.holds() {
			continue
		}
		if s.path == NoPath { // there is nobody to tell, or to wait for
			e.fail(s, errUnmet)
			continue
		}
		s.leaving = true
		e.sayBye(s)
	}
}

// sayBye tells s that this rank leaves, as soon as there is room.
func (e *Engine) sayBye(s *Session) {
	if len(s.news) > 0 {
		e.tellNews(s) // who has left does not say so any more
	}
	i := e.room(s, request, 0)
	if i == none || len(s.news) > 0 {
		return // the acknowledgement that brings room has s served again
	}
	s.leaving = false
	e.markDirty(s)
	e.appendRecord(i, &wire.Record{Code: wire.CodeBye}, 0)
	e.slots[i].flags |= wire.FlagAckNow | wire.FlagFence
}

// takeBye takes in that s will issue nothing more.
func (e *Engine) takeBye(s *Session) {
	if s.bye {
		return
	}
	s.bye = true
	e.match.left++
	e.gone.add(s.rank)
	e.dropAllDeferred(s, leftError(s))
	e.endMessages(s, leftError(s))
}

// A ByeWait is met when no living peer is known that this rank still has
// something in flight to, other than peers that have left themselves.
type ByeWait struct{ Engine *Engine }

// Met reports whether the wait is over.
func (w *ByeWait) Met() bool {
	for _, s := range w.Engine.active {
		if s.state != dead && !s.bye && (s.leaving || s.holds()) {
			return false
		}
	}
	return true
}

// A LeftWait is met when every living peer has left, and nothing is in flight.
type LeftWait struct{ Engine *Engine }

// Met reports whether the wait is over.
func (w *LeftWait) Met() bool {
	for _, s := range w.Engine.byRank {
		if s.state == open && !s.bye {
			return false
		}
	}
	return true
}
