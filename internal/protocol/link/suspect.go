package link

import (
	"fmt"

	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
)

// A connection beside the link, such as that of a rank to the rendezvous, may end because the rank's process has,
// or because somebody has forged a segment. So the rank itself is asked: a process that has ended
// acknowledges nothing that it is sent afterwards, and the frames of nobody else do so for it.

// suspicion is that the peer's process may have ended.
type suspicion struct {
	since   int64  // 0: there is none
	life    uint64 // of the process, 0: of any
	packet  uint64 // clears the peer when it is acknowledged, as a later one does
	asked   int32  // how often
	askAt   int64
	because error
}

// hearing is how long a peer that is under suspicion has for an answer.
func (l *Link) hearing() int64 {
	return max(l.cfg.DeadAfter/6, min(l.cfg.DeadAfter, 3*reliable.MaxTimeout))
}

const questions = 16 // within that time; half of them are asked at least

// Suspect has the peer asked whether it lives, because its process of the given incarnation, or any if
// that is 0, may have ended. Config.Asked is told the answer. If there is none within a sixth of DeadAfter,
// the session ends, for the reason because. A peer that is being asked has to answer anew.
func (s *Session) Suspect(life uint64, because error) {
	l := s.link
	switch {
	case s.state == dead:
		l.asked(s.rank, life, false)
		return
	case life != 0 && s.peer > life:
		return
	}
	before := s.suspicion
	s.suspicion = suspicion{since: l.Now, life: life, packet: s.ways[Single].nextPacket, because: because}
	if before.since != 0 && before.life == life {
		s.suspicion.since, s.suspicion.asked = before.since, before.asked
	}
	s.markActive()
	l.question(s)
}

// restart has the time count from now on: the peer could not be asked before.
func (x *suspicion) restart(now int64) {
	if x.since != 0 {
		x.since, x.asked = now, 0
	}
}

// question asks the peer of s once more, or gives it up.
func (l *Link) question(s *Session) {
	x := &s.suspicion
	switch silent := l.Now - x.since; {
	case x.life != 0 && s.peer > x.life: // it was found meanwhile where it is now
		s.suspicion = suspicion{}
		return
	case s.call == callWaits: // its turn restarts this
	case silent >= l.hearing() && x.asked >= questions/2 && !l.unasked(s):
		why := fmt.Errorf("%w; it was asked, and has not answered for %s", x.because, seconds(silent))
		if s.path == NoPath {
			l.NotFound(s.rank, why) // a later process may have the rank
		} else {
			s.GiveUp(why)
		}
		return
	case s.path == NoPath: // there is a search for the way
		x.asked++
	case l.freeSlots == 0:
	default:
		x.asked++
		l.press(s)
	}
	x.askAt = l.Now + l.hearing()/questions
	l.WakeBy(x.askAt)
}

// press sends the peer of s what it has to answer if it lives.
func (l *Link) press(s *Session) {
	switch {
	case s.state == open:
		l.ask(s)
	case l.yielded(s): // its hello goes on, once it has the answer
		a := l.answers[s.rank]
		l.sendWhole(a.answer, a.path)
	default:
		l.hail(s)
	}
}

// acquit ends the suspicion against a peer that has answered.
func (l *Link) acquit(s *Session) {
	life := s.suspicion.life
	s.suspicion = suspicion{}
	l.asked(s.rank, life, true)
}

func (l *Link) asked(rank int, life uint64, lives bool) {
	if l.cfg.Asked != nil {
		l.cfg.Asked(rank, life, lives)
	}
}
