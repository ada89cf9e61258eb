package link

import (
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// Where many ranks share a processor a handshake waits long to be computed. A rank that works at one says
// so to its peer, which does not take it for dead meanwhile.

// reassure tells a rank whose hello or answer comes again, while this rank is still at work, that it
// has come. The ticket's signature is not verified
// by then, so there is one search for the way at a time, and one frame for a frame.
func (l *Link) reassure(came PathID, to *secure.Ticket) {
	rank, life := int(to.Rank), to.Incarnation
	if s := l.byRank[rank]; s != nil && s.path != NoPath {
		if s.greeting == nil || l.again(&s.greeting.toldAt) {
			l.sendWhole(l.ownTicket(to), s.path)
		}
		return
	}
	a := l.answering[rank]
	if a == nil || a.reassured || !l.again(&a.toldAt) {
		return
	}
	a.reassured = true
	l.route(to, came, func(path PathID) {
		if a.reassured = false; path != NoPath && l.isAnswering(rank, life) {
			l.sendWhole(l.ownTicket(to), path)
		}
	})
}

// again reports whether what was said at a time is to be said again, and sets the time if so. Where processors
// lack, repeats of a hello come all at once.
func (l *Link) again(at *int64) bool {
	if *at != 0 && l.Now-*at < reliable.MinTimeout {
		return false
	}
	*at = l.Now
	return true
}

// ownTicket returns the frame that says to a rank who this one is.
func (l *Link) ownTicket(to *secure.Ticket) []byte {
	g := wire.Greeting{Kind: wire.KindTicket, Ticket: l.cfg.Credentials.Ticket, TargetLife: to.Incarnation, Target: to.Rank}
	frame := make([]byte, wire.GreetingLen)
	g.Put(frame, l.cfg.Credentials.code())
	return frame
}

// longestWork is how many times DeadAfter a handshake may take that one of the two is working at.
const longestWork = 12

// working reports whether that time is not over for the session s, which is dialed.
func (l *Link) working(s *Session) bool {
	return l.Now-s.greeting.since < longestWork*l.cfg.DeadAfter
}

// lives takes in that a peer which is dialed answers, and has not proved yet who it is. Anybody can
// have captured such a frame, so it counts for a time only. The peer's hello does not count: it does not
// say that anything of this rank gets there.
func (l *Link) lives(s *Session) {
	if l.working(s) {
		s.liveness.Works(l.Now)
	}
}

// unasked reports whether the peer of s, which is dialed, cannot have anything to answer, as this rank has
// not come to make its hello yet.
func (l *Link) unasked(s *Session) bool {
	return s.state == dialing && s.greeting != nil && s.greeting.hello == nil && l.working(s) && !l.yielded(s)
}
