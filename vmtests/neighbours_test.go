package vmtests

import (
	"encoding/binary"
	"maps"
	"slices"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/secure"
)

// Two jobs that have been given one key work side by side at the same port, and what the ranks
// of one have said to each other is nothing to those of the other.
func TestAnotherJobAtThePort(t *testing.T) {
	testenv.Only(t, testenv.Attacks)
	t.Parallel()
	for _, w := range testenv.Cases([]walls{{"xdp-native", true, secure.Sign}, {"udp", false, secure.Seal}}, walls{"xdp-native", true, secure.Seal}) {
		t.Run(w.name(), func(t *testing.T) {
			const ranks = 2
			lab := acceptAnswers(t, labtest.New(t, netlab.Config{Ranks: 2*ranks + 1}), w.transport)
			key := secure.NewKey()
			var both [2]*siege
			for i := range both {
				both[i] = besiege(t, lab, i*ranks)
				both[i].j = start(t, lab, spec{program: "besieged", ranks: ranks, host: i * ranks, transports: []string{w.transport}, key: &key, level: w.level, overTCP: true, env: w.env()})
			}
			for _, s := range both {
				for _, r := range s.j.ranks {
					s.j.await(r, "running")
				}
				s.await(w.kinds()...)
			}
			var sessions [2]map[int]uint64
			for i, s := range both {
				sessions[i] = maps.Clone(s.sessions)
			}
			for i, s := range both {
				s.rest()
				for _, a := range s.foreign(both[1-i], ranks*(1-2*i)) {
					s.run(a)
				}
			}
			for _, s := range both {
				for _, r := range s.j.ranks {
					r.tell("stop")
				}
			}
			for _, s := range both {
				s.j.finish()
				for _, r := range s.j.ranks {
					checkUnmoved(t, r.n, s.j.counters(r))
				}
			}
			for i, s := range both {
				if s.look(); !maps.Equal(s.sessions, sessions[i]) {
					t.Errorf("job %d: the sessions are %x, and were %x", i, s.sessions, sessions[i])
				}
			}
		})
	}
}

// foreign are frames of another job, whose ranks are on hosts so far from those of s's job.
func (s *siege) foreign(other *siege, apart int) (attacks []attack) {
	for _, kind := range other.kinds() {
		attacks = append(attacks, attack{kind + " of another job", everyRefusal(), true, func(n int) shot {
			f := other.any(kind)
			f.to -= apart
			if n%2 == 0 {
				f.from -= apart // in the place of the peer there
			}
			if session, ok := s.sessions[f.to]; ok && n%3 == 0 && len(f.payload) >= kindAt+8 && !slices.Contains([]string{"hello", "hello-ack"}, kind) {
				binary.LittleEndian.PutUint64(f.payload[sessionAt:], session)
				if n%2 == 0 {
					renumber(f.payload, n)
				}
			}
			return f
		}})
	}
	return attacks
}
