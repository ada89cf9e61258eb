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

// lost finds out what has become of a process whose connection has ended with err and without a word of the process,
// and makes it known. Where a launcher serves the rendezvous it tells of ends by itself.
func (s *Server) lost(client *local, err error) {
	rank, incarnation := client.rank, client.incarnation
	if s.members.await(rank, incarnation, s.members.patience(rank), s.stopped) != unknown {
		return
	}
	reason := s.doubt(rank, incarnation, err)
	if s.rank == noRank {
		return
	}
	known := s.board.published(rank, incarnation)
	limit := s.members.silence
	if !known { // nobody can ask for it
		limit /= 6
	}
	fate := s.members.await(rank, incarnation, limit, s.stopped)
	if fate == silent || fate == unknown && !known {
		s.board.ended(&End{EndedError: EndedError{Rank: rank, Incarnation: incarnation, Reason: reason}, Suspected: true, Asker: noRank})
	}
}

// doubt has members ask a process, for a reason, and returns that in the words that they use if it does not answer.
func (s *Server) doubt(rank int, incarnation uint64, why error) (reason string) {
	asker := s.members.suspect(rank, incarnation)
	reason = truncate(fmt.Sprintf("its process has ended, or cannot be reached: its connection to the rendezvous was lost (%v), and it had not left the job", why))
	s.board.suspect(&End{EndedError: EndedError{Rank: rank, Incarnation: incarnation, Reason: reason}, Suspected: true, Asker: asker})
	return reason
}
