package link

import (
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// debts is what the peer owes besides what is on its way.
type debts struct {
	owed     int32 // answers
	watched  int32 // waiters that need to know if the peer dies
	expected bool  // a sign of life is asked for, once
}

// Watch begins or ends (delta 1 or -1) a wait for something that only the peer can bring
// about, so that its death is noticed. A caller that begins a wait also calls Await.
func (s *Session) Watch(delta int32) {
	if s.watched += delta; s.watched < 0 {
		panic("link: a watch ended that never began")
	}
}

// Watched returns how many waits have begun and not ended.
func (s *Session) Watched() int32 { return s.watched }

// Owe counts the answers that the peer owes: delta more, or fewer.
func (s *Session) Owe(delta int32) {
	if s.owed += delta; delta > 0 {
		s.markActive()
	}
}

// Owed returns how many answers the peer owes.
func (s *Session) Owed() int32 { return s.owed }

// Expect asks for one sign of life of the peer.
func (s *Session) Expect() {
	s.expected = true
	if s.liveness.AskAt() == 0 {
		s.Await()
	}
}

// Await sees to it that s, which now owes a sign of life, is asked for one.
func (s *Session) Await() {
	if s.state == dead {
		return
	}
	s.markActive()
	if s.path == NoPath || s.call == callWaits {
		return
	}
	s.listen()
	s.link.WakeBy(s.liveness.AskAt())
}

// listen has the peer's silence count from now on, unless it does already.
func (s *Session) listen() {
	if l := s.link; !s.liveness.Owes() {
		s.liveness.Owe(l.Now, l.pingAfter(s))
		l.WakeBy(s.liveness.AskAt())
	}
}

// excused is how late Tick may run after the deadline, in nanoseconds, without this rank having
// lacked a processor. No more than so many per cent of the time are excused: a rank that runs late all the
// time, or takes itself for late, notices deaths, only later.
const (
	excused   = 50 * millisecond
	excusable = 75
)

// excuse has a time in which this rank lacked a processor not count as silence of the peer, which
// may share its host: neither could do anything.
func (s *Session) excuse(late int64) {
	now := s.link.Now
	s.liveness.Excuse(late, now)
	s.exchange.Excuse(late, now)
	reliable.Excuse(&s.suspicion.since, late, now)
	for c := range s.oldest {
		if o := &s.oldest[c]; o.since != 0 {
			o.since += late
		}
	}
}

// Holds reports whether something is on its way to s, or waits to be sent.
func (s *Session) Holds() bool { return s.held[Request]+s.held[Response] > 0 }

// Idle reports whether nothing is outstanding in either direction.
func (s *Session) Idle() bool {
	if s.state == dead {
		return true
	}
	return s.state == open && s.suspicion.since == 0 && s.renewing.askAt == 0 && s.held == [NumClasses]int32{} && s.acks.at == 0 && !s.acks.now && s.length.dueAt == 0 &&
		s.fault == nil && !s.owes()
}

// owes reports whether the peer has something to bring, be it only a sign of life.
func (s *Session) owes() bool {
	return s.flying() > 0 || s.owed > 0 || s.watched > 0 || s.parked != [numRows]int32{} || s.expected || s.unapplied() || s.link.cfg.Upper.Owes(s)
}

// flying returns how many bundles are on their way.
func (s *Session) flying() int32 { return s.inFlight[Request] + s.inFlight[Response] }

// unapplied reports whether a request bundle has been closed or begun and is not
// known to have taken effect. The peer may hold it, received and parked.
func (s *Session) unapplied() bool { return s.acked[Request] != s.nextSeq[Request] }

// pingAfter is how long a peer that owes an answer may be silent before it is
// asked for one. It is shorter where the answer may be an acknowledgement that
// was lost, which nothing but a question brings again.
func (l *Link) pingAfter(s *Session) int64 {
	if s.unapplied() && s.owed == 0 {
		return min(reliable.MaxTimeout, l.cfg.DeadAfter/4)
	}
	return l.cfg.DeadAfter / 4
}

// timers does what is due for one session and reports its next deadline.
func (l *Link) timers(s *Session) {
	if s.state == dead {
		return
	}
	if s.overdue != 0 {
		s.GiveUp(l.unheard(s))
		return
	}
	if s.fault != nil {
		s.GiveUp(s.fault)
		return
	}
	if s.acks.at != 0 && l.Now >= s.acks.at {
		s.acks.now = true
		l.service(s)
	}
	if s.length.dueAt != 0 && l.Now >= s.length.dueAt {
		l.service(s)
	}
	if s.againAt != 0 && l.Now >= s.againAt {
		s.againAt = 0
		l.service(s)
	}
	for w := range numWays {
		if t := &s.ways[w]; t.resendAt != 0 && l.Now >= t.resendAt {
			l.timeout(s, w)
		}
	}
	if due := s.exchange.DueAt(); due != 0 && l.Now >= due {
		l.repeatExchange(s)
	}
	l.keepAlive(s)
	if s.suspicion.since != 0 && l.Now >= s.suspicion.askAt {
		l.question(s)
	}
	if s.renewing.askAt != 0 && l.Now >= s.renewing.askAt {
		l.renewAtRest(s)
	}
	if s.state == dead {
		return
	}
	for _, t := range [...]int64{s.acks.at, s.ways[Single].resendAt, s.ways[Joined].resendAt, s.againAt, s.liveness.AskAt(), s.length.dueAt, s.exchange.DueAt(), s.suspicion.askAt, s.renewing.askAt} {
		if t != 0 {
			l.WakeBy(t)
		}
	}
}

// keepAlive asks a peer that owes an answer for a sign of life, and gives it up after the limit.
func (l *Link) keepAlive(s *Session) {
	if s.path == NoPath || s.call == callWaits { // whoever looks for the way says so when there is none
		return
	}
	if s.state != dialing && !s.owes() {
		s.liveness.Settle()
		return
	}
	s.listen()
	if !s.liveness.Due(l.Now) {
		return
	}
	if s.liveness.Dead(l.Now, l.cfg.DeadAfter) && !l.unasked(s) {
		s.GiveUp(l.silence(s))
		return
	}
	if s.state == dialing {
		l.hail(s)
		if s.liveness.Expired(); s.liveness.Expirations() == callHellos {
			l.endTurn(s)
		}
		s.rtt.Expired()
		s.liveness.Ask(l.Now + min(s.rtt.Timeout(), l.nextHello()))
		return
	}
	s.liveness.Ask(l.Now + l.pingAfter(s))
	s.expected = false
	if s.exchange.Running() {
		l.ask(s) // no bundle can be sent
		return
	}
	// It may lack room that a dead third rank takes up until that is noticed, so the limit is more
	// than that takes.
	if s.liveness.Stuck(l.Now, 2*l.cfg.DeadAfter, s.unapplied()) {
		s.GiveUp(errStuck)
		return
	}
	asked, fault := l.cfg.Upper.Inquire(s)
	switch {
	case fault != nil:
		s.GiveUp(fault)
		return
	case !asked && s.flying() > 0:
		return
	case !asked && s.open[Request] == None && s.queue[Request].n == 0 && !l.ping(s):
		l.ask(s)
	}
	l.service(s)
}

// hail sends the hello of s, which is dialed.
func (l *Link) hail(s *Session) {
	if l.cfg.Credentials != nil {
		l.greet(s)
	} else {
		l.sendHandshake(wire.KindHello, s, 0)
	}
}

// nextHello is how long to wait after a hello at most, however slow others are: there is time for so many of
// them until the limit that not all are lost.
func (l *Link) nextHello() int64 {
	return max(reliable.MaxTimeout, min(l.cfg.DeadAfter/25, reliable.SlowTimeout))
}
