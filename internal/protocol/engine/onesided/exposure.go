package onesided

import (
	"slices"

	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// General active target synchronisation (section 11.5.2) counts on both sides. An
// origin counts the posts that came from a target and its own starts; a target
// counts its posts to an origin and the completes that came from there. Nothing is
// matched by name, so a post may come before its start and a complete before its
// wait, and both may go out while the other side does something else.

// Start begins an access epoch on a, which the target's next post opens. Until then,
// calls that are issued on a are kept back. Complete ends the epoch.
func (x *Operations) Start(a *Access) { a.starts++ }

// StartPosted is Start for a target that has posted and has told nobody.
func (x *Operations) StartPosted(a *Access) {
	if a.starts++; a.Starting() {
		a.posts = a.starts
	}
}

// Post opens this rank's window to the rank that a leads to, and tells it, unless
// quiet is set, as soon as there is room.
func (x *Operations) Post(a *Access, quiet bool) {
	s := a.session
	a.posted++
	switch {
	case quiet || s != nil && s.Dead():
	case s == nil:
		a.posts++
		x.issueQueue(a)
	default:
		s.posting = append(s.posting, a)
		s.MarkDirty()
	}
}

// sendPosts tells the peer of the posts that it is to be told of.
func (x *Operations) sendPosts(s *Peer) {
	for len(s.posting) > 0 {
		i := s.Room(link.Request, 0)
		if i == link.None {
			s.Stall()
			return
		}
		x.link.Append(i, &wire.Record{Code: wire.CodePost, Window: s.posting[0].window}, 0)
		s.posting = slices.Delete(s.posting, 0, 1)
	}
}

// Complete ends the access epoch on a that Start began. The target is told as soon as
// everything issued before has been applied; what is issued next belongs to the next
// epoch. The error concerns the target as a whole.
func (x *Operations) Complete(a *Access) error {
	c := Call{Code: wire.CodeComplete, Access: a}
	done, err := x.Issue(&c)
	if !done {
		x.deferCall(&c)
		if a.session != nil {
			a.session.Stall()
		}
	}
	return err
}

// tellComplete tells the target that the access epoch is over, once everything issued
// before has been applied.
func (x *Operations) tellComplete(a *Access) bool {
	s := a.session
	if s == nil {
		if a.completes != a.posted {
			a.completes++
		}
		x.completed(localHolder, a.window, true)
		a.completed++
		return true
	}
	i := x.requestRoom(a, 0)
	if i == link.None {
		return false
	}
	x.add(a, i, &wire.Record{Code: wire.CodeComplete, Window: a.window}, 0, wire.FlagFence)
	s.MarkDirty()
	a.completed++
	return true
}

// takePost handles a peer's post record: what was kept back may act.
func (x *Operations) takePost(s *Peer, id uint32) mpierr.Class {
	if w, class := x.windowFor(s, id); w == nil {
		return class
	}
	a := x.OpenAccess(s, id)
	if int32(a.posts-a.completed) > 0 {
		return mpierr.RMASync // it has posted and not waited
	}
	a.posts++
	s.MarkDirty()
	return mpierr.Success
}

// takeComplete handles a peer's complete record. It has the results of what it has
// read; for the rest nothing is ordered until the exposure ends.
func (x *Operations) takeComplete(s *Peer, id uint32) mpierr.Class {
	a := s.access[id]
	if a == nil || a.completes == a.posted {
		return mpierr.RMASync // nothing was posted to it
	}
	a.completes++
	x.completed(s.ID(), id, true)
	return mpierr.Success
}

// Exposing reports whether the origin that a leads to has yet to complete.
func (a *Access) Exposing() bool { return a.completes != a.posted }

// Starting reports whether the target has yet to post to this rank.
func (a *Access) Starting() bool { return int32(a.starts-a.posts) > 0 }

// Err returns why the target cannot be reached, or nil.
func (a *Access) Err() error {
	if err := a.reachable(); err != nil {
		return err
	}
	return nil
}

func (a *Access) reachable() *mpierr.Error {
	switch s := a.session; {
	case s == nil:
	case s.Dead():
		return s.Failure()
	case s.left != nil:
		return s.left
	}
	return nil
}

// Answers reports whether the target is this rank, or has answered it at least once.
func (a *Access) Answers() bool { return a.session == nil || !a.session.Dialing() }

// Session returns the session with the rank that a leads to, nil for this rank.
func (a *Access) Session() *link.Session {
	if a.session == nil {
		return nil
	}
	return a.session.Session
}

// GiveUpExposure forgets a complete that will not come.
func (x *Operations) GiveUpExposure(a *Access) { a.completes = a.posted }

// An ExposureWait is met when the origin that a window is exposed to has completed, or
// cannot any more.
type ExposureWait Access

// Met reports whether the wait is over.
func (w *ExposureWait) Met() bool {
	a := (*Access)(w)
	return !a.Exposing() || a.reachable() != nil
}
