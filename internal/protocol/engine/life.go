package engine

import (
	"github.com/xdprma/xdprma/internal/lastwords"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// Ended takes in that a process with a rank has ended, as the rendezvous says: what waits for it
// fails, with the reason why. No other process will have the rank if life, the incarnation
// of the process, is 0.
func (e *Engine) Ended(rank int, life uint64, why error) {
	s := e.Session(rank)
	if life != 0 && (s == nil || s.Life() == 0 || s.Life() > life) {
		return // the search for the rank finds out, or it has found a later process
	}
	if s != nil {
		failed := e.Stats.PeersFailed
		if s.Fail(why); s.Left() != nil {
			e.Stats.PeersFailed = failed // it has left in good order
		}
	} else if rank >= 0 && rank < e.cfg.Size {
		e.AddGone(rank)
	}
}

// Suspected takes in that a process with a rank may have ended, as Ended does, and has it asked. Without a
// session with the rank it is asked if begin is set. Config.Asked is told the answer.
func (e *Engine) Suspected(rank int, life uint64, begin bool, why error) {
	s := e.Session(rank)
	if s == nil && begin && rank >= 0 && rank < e.cfg.Size && rank != e.cfg.Rank {
		s = e.Connect(rank)
	}
	switch {
	case s == nil:
	case s.Left() == nil:
		s.Suspect(life, why)
	case e.cfg.Asked != nil: // it ends any time now
		e.cfg.Asked(rank, life, false)
	}
}

// Bye tells every living peer that this rank will issue nothing more, and if why is not empty, that its
// program has failed, and how. It leaves out a peer that has yet to hear of this rank and that nothing
// is to be sent to. Peers that wait for a lock here are refused.
func (e *Engine) Bye(why string) {
	e.RefuseWaiters()
	e.lastWords = lastwords.Of(why)
	for rank := range e.cfg.Size { // not the map: the same calls give the same frames
		s := e.Session(rank)
		if s == nil || s.Dead() || s.Dialing() && !s.Holds() {
			continue
		}
		if !s.HasPath() { // there is nobody to tell, or to wait for
			s.Fail(errUnmet)
			continue
		}
		s.leaving = true
		e.sayBye(s)
	}
}

// sayBye tells s that this rank leaves, as soon as there is room.
func (e *Engine) sayBye(s *Session) {
	if s.mail.HasNews() {
		e.TellNews(&s.mail) // who has left does not say so any more
	}
	i := s.Room(link.Request, len(e.lastWords))
	if i == link.None || s.mail.HasNews() {
		return // the acknowledgement that brings room has s served again
	}
	s.leaving = false
	s.MarkDirty()
	copy(e.Append(i, &wire.Record{Code: wire.CodeBye}, len(e.lastWords)), e.lastWords)
	e.Mark(i, wire.FlagAckNow|wire.FlagAfterAll)
}

// takeBye takes in that s will issue nothing more, and why if its program has failed.
func (e *Engine) takeBye(s *Session, why []byte) {
	said := lastwords.Of(string(why))
	if !e.TakeLeave(&s.Session, said) {
		return
	}
	if said != "" {
		e.Stats.PeersFailed++
	}
	e.Operations.EndPeer(&s.ops, s.Left())
	e.Messages.EndPeer(&s.mail, s.Left())
}

// A ByeWait is met when no living peer is known that this rank still has
// something in flight to, other than peers that have left themselves.
type ByeWait struct{ Engine *Engine }

// Met reports whether the wait is over.
func (w *ByeWait) Met() bool {
	for _, to := range w.Engine.Active() {
		if s := sessionOf(to); !s.Dead() && s.Left() == nil && (s.leaving || s.Holds()) {
			return false
		}
	}
	return true
}

// A LeftWait is met when every living peer has left, and nothing is in flight.
type LeftWait struct{ Engine *Engine }

// Met reports whether the wait is over.
func (w *LeftWait) Met() bool {
	for rank := range w.Engine.cfg.Size {
		if s := w.Engine.Session(rank); s != nil && s.Open() && s.Left() == nil {
			return false
		}
	}
	return true
}
