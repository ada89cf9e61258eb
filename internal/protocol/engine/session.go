package engine

import (
	"errors"

	"github.com/xdprma/xdprma/internal/protocol/engine/membership"
	"github.com/xdprma/xdprma/internal/protocol/engine/message"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// Session is everything that one rank keeps about another. The link's part of it is in
// link.Session.
type Session struct {
	link.Session
	membership.Member
	mail    message.Peer  // messages between the two ranks
	ops     onesided.Peer // one-sided operations between them
	leaving bool          // the peer is still to be told that this rank leaves
}

// sessionOf returns what the link calls s.
func sessionOf(s *link.Session) *Session { return s.Upper.(*Session) }

// Peer returns whom a Sending is to, nil for this rank.
func (s *Session) Peer() *message.Peer {
	if s == nil {
		return nil
	}
	return &s.mail
}

var errUnmet = errors.New("this process leaves the job and has not met it")

// Session returns the session with rank, or nil if there is none yet.
func (e *Engine) Session(rank int) *Session {
	if s := e.Link.Session(rank); s != nil {
		return sessionOf(s)
	}
	return nil
}

// Dial returns the session with incarnation peer of rank, starting the handshake
// over path if there is none. It does not wait: calls on the session are queued
// until it opens, and fail if it does not.
func (e *Engine) Dial(rank int, path PathID, peer uint64) *Session {
	return sessionOf(e.Link.Dial(rank, path, peer))
}

// DialBy is Dial in a job with a key, by the ticket of the rank.
func (e *Engine) DialBy(path PathID, ticket *secure.Ticket) *Session {
	return sessionOf(e.Link.DialBy(path, ticket))
}

// Connect returns the session with rank, nil for this rank. If there is none yet, it begins
// one, and has Config.Seek look for the way. It does not wait: calls on the session are
// queued until the way is known, or the peer dials, and fail if there is none.
func (e *Engine) Connect(rank int) *Session {
	if rank == e.cfg.Rank {
		return nil
	}
	return sessionOf(e.Link.Connect(rank))
}

// OpenAccess returns the access at s to the window with the given id, the same at every
// call.
func (e *Engine) OpenAccess(s *Session, id uint32) *onesided.Access {
	return e.Operations.OpenAccess(&s.ops, id)
}
