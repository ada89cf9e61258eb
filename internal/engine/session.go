package engine

import (
	"errors"

	"github.com/xdprma/xdprma/internal/link"
	"github.com/xdprma/xdprma/internal/membership"
	"github.com/xdprma/xdprma/internal/message"
	"github.com/xdprma/xdprma/internal/mpierr"
)

// Session is everything that one rank keeps about another. The link's part of it is in
// link.Session.
type Session struct {
	link.Session
	membership.Member
	mail      message.Peer       // messages between the two ranks
	leaving   bool               // the peer is still to be told that this rank leaves
	access    map[uint32]*Access // this rank's accesses at the peer, by window
	lockOpen  *Access            // whose lock record started the open bundle of requests, while that is sealed
	marks     []*Access          // those whose completions the peer is to be told of, in checking mode
	deferring []*Access          // those that keep calls back
	posting   []*Access          // those whose posts the peer is to be told of
	blocks    bool               // the peer may hold a lock that somebody waits for

	// refusalsSeen is how many requests that no answer was due for the peer has refused,
	// as far as this rank has heard: a flush waits until it has heard of all of them.
	refusalsSeen uint32

	types     *givenTypes // datatypes defined at the peer, or nil
	peerTypes *takenTypes // datatypes that the peer has defined here, or nil
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

// lockBundle returns whose lock record started the open bundle of requests, or nil.
func (s *Session) lockBundle() *Access {
	if s.Sealed() {
		return s.lockOpen
	}
	return nil
}

var (
	errUnmet   = errors.New("this process leaves the job and has not met it")
	errRefused = errors.New("refused by the target")
)

// refusals says what a target has most likely refused for, which the class alone goes
// back to tell.
var refusals = map[mpierr.Class]error{
	mpierr.RMARange: errors.New("refused by the target: it has no memory attached there"),
	mpierr.Disp:     errors.New("refused by the target: the address there is not aligned to the elements"),
	mpierr.Win:      errors.New("refused by the target: it has freed the window"),
	mpierr.Group:    errors.New("refused by the target: this rank is not in the window's group"),
}

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
func (e *Engine) Dial(now int64, rank int, path PathID, peer uint64) *Session {
	return sessionOf(e.Link.Dial(now, rank, path, peer))
}

// Meet returns the session with rank. If there is none yet, it begins one whose way is
// not known: calls on it are queued until Dial knows the way, or the peer dials, and
// fail with Unreachable.
func (e *Engine) Meet(now int64, rank int) (s *Session, begun bool) {
	met, begun := e.Link.Meet(now, rank)
	return sessionOf(met), begun
}

// upper is what the link calls.
type upper Engine

// Begin implements link.Upper.
func (u *upper) Begin() *link.Session {
	s := &Session{}
	s.Upper = s
	s.mail = message.NewPeer(&s.Session)
	return &s.Session
}

// Apply implements link.Upper.
func (u *upper) Apply(b *link.Bundle) bool { return (*Engine)(u).apply(b) }

// Answers implements link.Upper.
func (u *upper) Answers(s *link.Session, body []byte) { (*Engine)(u).answers(sessionOf(s), body) }

// Ready implements link.Upper.
func (u *upper) Ready(to *link.Session) {
	e, s := (*Engine)(u), sessionOf(to)
	e.View.Ready(to)
	if len(s.posting) > 0 {
		e.sendPosts(s)
	}
	if len(s.deferring) > 0 {
		e.issueDeferred(s)
	}
	if len(s.marks) > 0 {
		e.sendMarks(s)
	}
	e.Exchange.Ready(&s.mail)
	if s.leaving {
		e.sayBye(s)
	}
}

// Waits implements link.Upper.
func (u *upper) Waits(to *link.Session) bool {
	s := sessionOf(to)
	return s.leaving || len(s.deferring) > 0 || s.mail.Waits()
}

// Owes implements link.Upper.
func (u *upper) Owes(to *link.Session) bool {
	s := sessionOf(to)
	return s.mail.Owes() || len(s.deferring) > 0 || s.blocks && len(u.waits) > 0
}

// Failed implements link.Upper: every call that waits for the peer gets the error, and
// the peer's locks are released.
func (u *upper) Failed(gone *link.Session) {
	e, s := (*Engine)(u), sessionOf(gone)
	e.TakeFailure(gone)
	e.failOps(s)
	for _, a := range s.access {
		a.fail(s.Failure())
	}
	e.EndPeer(&s.mail, s.Failure())
	e.dropLocks(s)
	e.dropTypes(s)
	s.marks, s.posting = nil, nil
}

// Sweep implements link.Upper.
func (u *upper) Sweep() {
	(*Engine)(u).Exchange.Sweep()
	(*Engine)(u).lookAtWords()
}
