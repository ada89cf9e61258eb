package bootstrap

import (
	"cmp"
	"fmt"
	"time"
)

// silenceByDefault is how long a rank that owes an answer may be silent if nobody says anything else.
const silenceByDefault = 5 * time.Second

// silence returns how long a rank of the job may be silent.
func (c *Config) silence() time.Duration {
	return cmp.Or(c.DeadAfter, c.SilenceByDefault, silenceByDefault)
}

// Times of a process whose connection was lost.
const (
	returnLimit = 50 * time.Millisecond  // in which it opens another one, or is asked for
	askPause    = time.Second            // between two such questions, at least
	answerLimit = 750 * time.Millisecond // by then it has answered, where a rank may be silent for longer than that
)

// lost finds out what has become of a process whose connection has ended with err and without a word of the process,
// and makes it known. One that lives and does not come again is asked from time to time. Where a launcher serves the
// rendezvous it tells of ends by itself.
func (s *Server) lost(client *local, err error) {
	rank, incarnation := client.rank, client.incarnation
	if s.members.await(rank, incarnation, returnLimit, s.stopped, false) == returned {
		return
	}
	known := s.board.published(rank, incarnation) // else nobody can ask for it
	for pause := askPause; ; pause = min(2*pause, max(askPause, s.members.silence)) {
		reason := s.doubt(rank, incarnation, err)
		switch fate := s.members.await(rank, incarnation, s.members.silence, s.stopped, true); {
		case fate == returned:
			return
		case fate == unknown && s.rank == noRank: // nobody hears it
			s.members.release(rank, incarnation)
			return
		case fate == silent || fate == unknown && !known:
			if s.members.condemn(rank, incarnation) {
				s.over(rank, incarnation, reason)
			}
			return
		}
		if s.members.await(rank, incarnation, pause, s.stopped, false) == returned {
			return
		}
	}
}

// over makes known that a process is silent whose connection was lost. If it has begun to leave, it has left.
func (s *Server) over(rank int, incarnation uint64, reason string) {
	if p := s.board.parted(rank); !p.At.IsZero() && p.Why == "" && p.incarnation == incarnation {
		_ = s.board.say(rank, incarnation, nil, ErrLeft) // else the board is closed
		return
	}
	s.board.ended(&End{EndedError: EndedError{Rank: rank, Incarnation: incarnation, Reason: reason}, Suspected: true, Asker: noRank})
}

// doubt has members ask a process, for a reason, and returns that in the words that they use if it does not answer.
func (s *Server) doubt(rank int, incarnation uint64, why error) (reason string) {
	asker, question := s.members.ask(rank, incarnation)
	reason = truncate(fmt.Sprintf("its process has ended, or cannot be reached: its connection to the rendezvous was lost (%v), and it had not left the job", why))
	s.board.suspect(&End{EndedError: EndedError{Rank: rank, Incarnation: incarnation, Reason: reason}, Suspected: true, Asker: asker, Question: question})
	return reason
}

// ask takes in that members are asked for a process, and returns the rank that asks it in any case, and the number of the question.
func (m *members) ask(rank int, incarnation uint64) (asker int, question uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ranks[rank]
	if r.incarnation == incarnation {
		r.question++
		r.asked, r.silent = m.now(), false
		r.changed()
	}
	if asker = m.server; asker != noRank {
		return asker, r.question
	}
	for other, r := range m.ranks {
		if r.visit != nil && other != rank && (asker == noRank || other < asker) {
			asker = other
		}
	}
	return asker, r.question
}

// answer takes in what a member tells of a process for which it was asked.
func (m *members) answer(by, rank int, incarnation uint64, question uint32, lives bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ranks[rank]
	if r == nil || r.incarnation != incarnation || r.question != question { // it may have died since an earlier one
		return
	}
	switch {
	case lives:
		r.heard = m.now()
		r.quiet = r.heard
	case by == m.server:
		r.silent = true
	default:
		return // others may hear it
	}
	r.changed()
}

// release lets another process have a rank.
func (m *members) release(rank int, incarnation uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.ranks[rank]; r.incarnation == incarnation && r.visit == nil {
		r.free = true
		r.changed()
	}
}

// condemn takes in that the others are told that a process has ended, unless it has come again.
func (m *members) condemn(rank int, incarnation uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.ranks[rank]
	if r.incarnation != incarnation || r.visit != nil {
		return false
	}
	r.over = true
	r.changed()
	return true
}

// away reports whether a process may come again whose connection was lost a moment ago.
func (m *members) away() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.ranks {
		if r.visit == nil && !r.free && !r.ended && !r.over && r.incarnation != 0 && m.now().Sub(r.quiet) < askPause {
			return true
		}
	}
	return false
}

// fate is what has become of a process whose connection was lost.
type fate int

const (
	unknown  fate = iota
	returned      // it has another connection, or nobody needs to know any more
	answers
	silent
)

// await returns what has become of a process whose connection was lost, once that is known, or unknown after a limit.
// Answers count if the process was asked.
func (m *members) await(rank int, incarnation uint64, limit time.Duration, stopped <-chan struct{}, asked bool) fate {
	end := time.After(limit)
	for {
		m.mu.Lock()
		r := m.ranks[rank]
		over, heard, quiet, change := r.visit != nil || r.free || r.ended || r.incarnation != incarnation, !r.heard.Before(r.asked), r.silent, r.change
		m.mu.Unlock()
		switch {
		case over:
			return returned
		case asked && heard:
			return answers
		case asked && quiet:
			return silent
		}
		select {
		case <-change:
		case <-end:
			return unknown
		case <-stopped:
			return returned
		}
	}
}
