package onesided

import (
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/protocol/link"
)

// Peer is what the operations keep about the peer of one session.
type Peer struct {
	*link.Session
	left      *mpierr.Error      // of what needs the peer, if it has left in good order
	access    map[uint32]*Access // this rank's accesses at the peer, by window
	lockOpen  *Access            // whose lock record started the open bundle of requests, while that is sealed
	marks     []*Access          // those whose completions the peer is to be told of, in checking mode
	deferring []*Access          // those that keep calls back
	posting   []*Access          // those whose posts the peer is to be told of
	newest    int32              // of the operations that await an answer of the peer, or none
	inquiry   inquiry

	// refusalsSeen is how many requests that no answer was due for the peer has refused,
	// as far as this rank has heard: a flush waits until it has heard of all of them.
	refusalsSeen uint32

	blocks bool // of Locks: the peer may hold a lock that somebody waits for

	types     *givenTypes // datatypes defined at the peer, or nil
	peerTypes *takenTypes // datatypes that the peer has defined here, or nil
}

// NewPeer returns what the operations keep about the peer of a new session.
func NewPeer(s *link.Session) Peer { return Peer{Session: s, newest: link.None} }

// lockBundle returns whose lock record started the open bundle of requests, or nil.
func (s *Peer) lockBundle() *Access {
	if s.Sealed() {
		return s.lockOpen
	}
	return nil
}

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

// Waits reports whether a call waits for s that Ready would send.
func (s *Peer) Waits() bool { return len(s.deferring) > 0 }

// Owes reports whether s owes something that the link does not know of.
func (x *Operations) Owes(s *Peer) bool {
	return len(s.deferring) > 0 || x.waitsFor(s) || s.hidesRefusals()
}

// EndPeer ends what waits for s, which has left in good order.
func (x *Operations) EndPeer(s *Peer, left *mpierr.Error) {
	s.left = left
	x.dropAllDeferred(s, left)
}

// Fail ends every call that waits for s, which has ended. Release follows.
func (x *Operations) Fail(s *Peer) {
	x.failOps(s)
	for _, a := range s.access {
		a.fail(s.Failure())
	}
	x.forget(s)
	x.dropWaits(s)
	x.dropTypes(s)
	s.marks, s.posting = nil, nil
}

// Release gives up what s held here, which has ended, when nothing that it has sent can
// take effect any more.
func (x *Operations) Release(s *Peer) {
	x.drop(s)
}

// Sweep looks after what waits for no session in particular.
func (x *Operations) Sweep() { x.lookAtWords() }
