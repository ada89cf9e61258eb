package onesided

import (
	"slices"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// General active target synchronisation (section 11.5.2) counts on both sides. An
// origin counts the posts that came from a target and its own starts; a target
// counts its posts to an origin and the completes that came from there. Nothing is
// matched by name, so a post may come before its start and a complete before its
// wait, and both may go out while the other side does something else.

// exposure is what a target counts of its posts to an origin.
type exposure struct {
	posted, completes uint32 // exposure epochs begun, ended by the origin
}

// complete ends an exposure epoch, and returns false if there is none.
func (e *exposure) complete() bool {
	if e.completes == e.posted {
		return false
	}
	e.completes++
	return true
}

// Exposing reports whether the origin has yet to complete.
func (e *exposure) Exposing() bool { return e.completes != e.posted }

// Post opens this rank's window to the rank that a leads to, and tells it, unless
// quiet is set, as soon as there is room.
func (x *Target) Post(a *Access, quiet bool) {
	s := a.session
	a.posted++
	switch {
	case quiet || s != nil && s.Dead():
	case s == nil:
		x.origin.posted(a)
	default:
		s.posting = append(s.posting, a)
		s.MarkDirty()
	}
}

// sendPosts tells the peer of the posts that it is to be told of.
func (x *Target) sendPosts(s *Peer) {
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

// takePost handles a peer's post record.
func (x *Target) takePost(s *Peer, r *wire.Record) mpierr.Class {
	if w, class := x.windowFor(s, r); w == nil {
		return class
	}
	a := x.origin.OpenAccess(s, r.Window)
	if a.open() {
		return mpierr.RMASync // it has posted and not waited
	}
	x.origin.posted(a)
	return mpierr.Success
}

// takeComplete handles a peer's complete record. It has the results of what it has
// read; for the rest nothing is ordered until the exposure ends.
func (x *Target) takeComplete(s *Peer, id uint32) mpierr.Class {
	a := s.accessTo(id)
	if a == nil || !a.complete() {
		return mpierr.RMASync // nothing was posted to it
	}
	x.completed(s.ID(), id, true)
	return mpierr.Success
}

// GiveUpExposure forgets a complete that will not come.
func (x *Target) GiveUpExposure(a *Access) { a.completes = a.posted }

// An ExposureWait is met when the origin that a window is exposed to has completed, or
// cannot any more.
type ExposureWait Access

// Met reports whether the wait is over.
func (w *ExposureWait) Met() bool {
	a := (*Access)(w)
	return !a.Exposing() || a.targetError() != nil
}
