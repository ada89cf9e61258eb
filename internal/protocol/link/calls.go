package link

// A rank that begins sessions with many others at once calls so many of them at a time: all their
// hellos would come at once, and each have to wait for all others before it is answered. A call
// that is not answered after some hellos goes on, and gives its turn to the next.
const (
	mostCalls  = 16
	callHellos = 2
)

// calling is what a session that is dialed has to do with turns.
type calling uint8

const (
	turnless  calling = iota // it is not dialed from here, or its turn is over
	callWaits                // for its turn
	callGoes                 // it has one
)

// call has hellos sent for s, whose path is known, as soon as there is a turn. The peer's silence
// counts from then on.
func (l *Link) call(s *Session) {
	if l.calls == mostCalls {
		s.call = callWaits
		l.callers = append(l.callers, s)
		return
	}
	l.calls++
	s.call = callGoes
	s.rtt = l.rtt.Guess()
	s.liveness.Restart(l.Now)
	s.liveness.Ask(l.Now) // the first hello is due at once
	s.suspicion.restart(l.Now)
	s.MarkDirty()
	l.WakeBy(l.Now)
}

// endTurn takes the turn from s, or its claim to one.
func (l *Link) endTurn(s *Session) {
	if s.call == callGoes {
		l.calls--
	}
	s.call = turnless
	for l.calls < mostCalls && len(l.callers) > 0 {
		next := l.callers[0]
		if l.callers = l.callers[1:]; next.call == callWaits {
			l.call(next)
		}
	}
}
