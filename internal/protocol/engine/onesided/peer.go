package onesided

import (
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/mpierr"
)

// Peer is what the operations keep about the peer of one session.
type Peer struct {
	*link.Session
	originSide
	targetSide
	blocks bool // of Locks: the peer may hold a lock that somebody waits for
}

// NewPeer returns what the operations keep about the peer of a new session.
func NewPeer(s *link.Session) Peer {
	return Peer{Session: s, originSide: originSide{newest: link.None}}
}

// UpToDate reports whether Ready has nothing to send to s.
func (s *Peer) UpToDate() bool { return len(s.posting)+len(s.deferring)+len(s.marks) == 0 }

// Ready sends what waits for s, as far as there is room.
func (x *Operations) Ready(s *Peer) {
	if len(s.posting) > 0 {
		x.sendPosts(s)
	}
	if len(s.deferring) > 0 {
		x.issueDeferred(s)
	}
	if len(s.marks) > 0 {
		x.sendMarks(s)
	}
}

// Owes reports whether s owes something that the link does not know of.
func (x *Operations) Owes(s *Peer) bool { return s.Waits() || x.waitsFor(s) || s.hidesRefusals() }

// EndPeer ends what waits for s, which has left in good order, and gives up what s holds here:
// all that it has issued has been applied, but for what waited for a lock.
func (x *Operations) EndPeer(s *Peer, left *mpierr.Error) {
	x.Origin.end(s, left)
	x.leave(s)
	x.Target.end(s)
}

// Fail ends every call that waits for s, which has ended. Release follows.
func (x *Operations) Fail(s *Peer) {
	x.Origin.fail(s)
	x.forget(s)
	x.dropWaits(s)
	x.Target.fail(s)
}

// Release gives up what s held here, which has ended, when nothing that it has sent can
// take effect any more.
func (x *Operations) Release(s *Peer) { x.drop(s) }

// Sweep looks after what waits for no session in particular.
func (x *Operations) Sweep() { x.lookAtWords() }
