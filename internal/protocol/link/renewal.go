package link

import "github.com/xdprma/xdprma/internal/protocol/wire"

// A direction of a session has a key for a time, and longer only if nothing is sent. The frames of a
// session that goes on renew it as they leave (see protect). One that has gone to rest since a bundle
// went or came does so once more, by a frame that only asks to be acknowledged, and is silent then:
// such frames are no use of a key. If the peer is silent, that says nothing: nobody waits for it.

const (
	renewAfter = 120_000 * millisecond // Credentials.RenewAfter outside tests
	renewAgain = 1000 * millisecond    // when it cannot; twice as long each time that a peer is asked
	renewAsks  = 5
)

// renewAfter returns for how long a direction of a session has one key.
func (l *Link) renewAfter() int64 {
	if id := l.cfg.Credentials; id != nil && id.RenewAfter != 0 {
		return id.RenewAfter
	}
	return renewAfter
}

// renewing is how frames to a peer go on with another key.
type renewing struct {
	at     int64           // when they do
	epoch  [numWays]uint64 // the first packets under the present one
	used   bool            // a bundle has gone or come under the present key, since that was last looked at
	begun  bool            // of a session at rest: frames go on with it
	packet uint64          // of a session at rest: an acknowledgement is asked for; 0: it is not
	asks   int32           // for it
	askAt  int64           // the next one; 0: none
}

// renew has the frames to s go on with the next key, if the peer has had one under the present
// key, without which it would not know the next. It reports whether they do.
func (l *Link) renew(s *Session) bool {
	r, after := &s.renewing, l.renewAfter()
	r.at = l.Now + min(after, renewAgain)
	had := false
	for w := range s.ways {
		had = had || s.ways[w].ackLargest >= max(1, r.epoch[w])
	}
	if !had {
		if s.times[renewal].at == 0 {
			l.renewLater(s)
		}
		return false
	}
	s.guard.Renew()
	l.forget(s, s.guard.Sealed())
	r.at, r.used = l.Now+after, false
	for w := range s.ways {
		r.epoch[w] = s.ways[w].nextPacket
	}
	l.renewLater(s)
	return true
}

// renewLater has somebody look by then whether s has gone to rest, and renewed no key.
func (l *Link) renewLater(s *Session) {
	if s.guard != nil && s.state == open {
		l.put(renewal, s, l.Now+l.renewAfter())
	}
}

// renewAtRest renews the key of frames to s, which is open, asking the peer to acknowledge one under it. If
// the peer may not have had one under the present key, it asks for that before.
func (l *Link) renewAtRest(s *Session) {
	r := &s.renewing
	if r.packet != 0 && s.ways[Single].ackLargest >= r.packet {
		if r.begun {
			r.packet, r.askAt = 0, 0
			return
		}
		r.asks = 0
	}
	if r.asks == renewAsks { // it hears of the key when somebody uses it again
		r.packet, r.askAt = 0, 0
		return
	}
	if !r.begun {
		r.begun = l.renew(s)
	}
	r.packet = l.inquire(s)
	r.askAt = l.Now + min(l.renewAfter(), renewAgain)<<r.asks
	r.asks++
	s.markActive()
}

// inquire sends a frame that only asks to be acknowledged, and returns its packet number, or 0 if there is
// no slot for it.
func (l *Link) inquire(s *Session) uint64 {
	if l.freeSlots == 0 {
		return 0
	}
	i, n := l.allocSlot(), wire.HeaderLen+wire.PieceLen
	clear(l.cfg.Slab.Payload(i)[wire.HeaderLen:n])
	return l.loose(s, i, n, wire.FlagAckNow, 0, Single)
}

// seekRest renews the keys of sessions that have been at rest for so long, and drops those of frames that
// would come too late. It sets the deadline for the next ones.
func (l *Link) seekRest() {
	for s := l.due(renewal); s != nil; s = l.due(renewal) {
		switch {
		case s.owes(): // what goes to it renews the key, be it a question
			l.renewLater(s)
		case s.renewing.used:
			s.renewing.used, s.renewing.begun, s.renewing.packet, s.renewing.asks = false, false, 0, 0
			l.renewAtRest(s)
		}
	}
	for s := l.due(expiry); s != nil; s = l.due(expiry) {
		s.guard.DropFormer()
	}
}

// kept takes in, after a frame from s, until when such frames are accepted under the former key.
func (l *Link) kept(s *Session) {
	if at := s.guard.FormerUntil(); at != s.times[expiry].at {
		if l.takeOff(expiry, s); at != 0 {
			l.put(expiry, s, at)
		}
	}
}
