package link_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

var errConnectionLost = errors.New("its connection was lost")

// suspects returns ranks, and what rank 0 is told of those that it has asked.
func suspects(t *testing.T, keyed bool) (*ranks, *[]string) {
	told := new([]string)
	change := func(c *link.Config) {
		if c.Rank == 0 {
			c.Asked = func(rank int, life uint64, lives bool) {
				*told = append(*told, fmt.Sprintf("rank %d of life %d lives %t", rank, life, lives))
			}
		}
	}
	if keyed {
		return newMembers(t, 2, secure.Seal, change), told
	}
	return newRanks(t, 2, change), told
}

// TestSuspectThatLivesAnswers has living ranks under suspicion, over a network that loses one frame of three: idle ones, ones
// that have no room for another bundle, and ones that are dialed just then.
func TestSuspectThatLivesAnswers(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		for _, state := range []string{"idle", "full", "dialing"} {
			f, told := suspects(t, keyed)
			s := f.dial(0, 1)
			if state != "dialing" {
				f.Until(1000*millisecond, s.Open)
				f.Settle()
			}
			for state == "full" && s.put(1000, 0, 0) {
			}
			random := rand.New(rand.NewPCG(1, 2))
			f.Filter = func(_, _ int, _ []byte) int { return min(1, random.IntN(3)) }
			s.Suspect(1, errConnectionLost)
			f.Until(testLimit/5, func() bool { return len(*told) > 0 })
			if s.Dead() || len(*told) != 1 || (*told)[0] != "rank 1 of life 1 lives true" {
				t.Errorf("keyed %t, %s: dead %t, told %q", keyed, state, s.Dead(), *told)
			}
			f.Filter = nil
			f.Pass(2 * testLimit)
			if err := f.flush(s); err != nil || len(*told) != 1 {
				t.Errorf("keyed %t, %s: afterwards: %v, told %q", keyed, state, err, *told)
			}
		}
	}
}

// TestSuspectThatIsDeadIsGivenUp has a rank die: what it has sent before comes late, and clears it of nothing.
func TestSuspectThatIsDeadIsGivenUp(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		for _, dialing := range []bool{false, true} {
			f, told := suspects(t, keyed)
			s := f.dial(0, 1)
			var late [][]byte
			if !dialing {
				f.Until(1000*millisecond, s.Open)
				f.Filter = func(from, _ int, b []byte) int {
					if from == 1 && (kindOf(b) == wire.KindAck || kindOf(b) == wire.KindData) {
						late = append(late, append([]byte(nil), b...))
						return 0
					}
					return 1
				}
				s.put(8, 0, 0)
				s.push()
				f.at(1, 0).put(8, 0, 0)
				f.at(1, 0).push()
				f.Pass(10 * millisecond)
			}
			f.Cut[1] = true
			s.Suspect(1, errConnectionLost)
			s.Suspect(1, errConnectionLost)
			f.Pass(300 * millisecond)
			for _, b := range late {
				f.e[0].Now = f.Now
				f.e[0].Receive(b, 1)
			}
			if !dialing && len(late) == 0 {
				t.Error("nothing comes late")
			}
			f.Until(testLimit/5-300*millisecond, s.Dead)
			err := s.Err()
			if len(*told) != 1 || (*told)[0] != "rank 1 of life 1 lives false" || !errors.Is(err, errConnectionLost) || !strings.Contains(err.Error(), "has not answered for 0.") {
				t.Errorf("keyed %t, dialing %t: %v, told %q", keyed, dialing, err, *told)
			}
			s.Suspect(1, errConnectionLost) // what it has found out it says again
			if len(*told) != 2 || (*told)[1] != (*told)[0] {
				t.Errorf("keyed %t, dialing %t: told %q", keyed, dialing, *told)
			}
		}
	}
}

// TestSuspicionIsOfOneLife has a rank suspected whose next process this rank has met.
func TestSuspicionIsOfOneLife(t *testing.T) {
	f, told := suspects(t, true)
	f.start(1, 2, 2, nil)
	s := f.open(0, 1)
	f.Settle()
	f.Cut[1] = true
	s.Suspect(1, errConnectionLost)
	f.Pass(testLimit)
	if s.Dead() || len(*told) != 0 {
		t.Errorf("dead %t, told %q", s.Dead(), *told)
	}
}

// TestSuspectWaitsForItsTurn suspects a rank whose call waits behind many ranks that are gone, and whose first hello gets lost: it has the
// whole time for an answer once it can be asked.
func TestSuspectWaitsForItsTurn(t *testing.T) {
	const gone = 440
	told := 0
	f := newRanks(t, gone+2, func(c *link.Config) {
		if c.Rank == 0 {
			c.Asked = func(int, uint64, bool) { told++ }
		}
	})
	for r := 1; r <= gone; r++ {
		f.Cut[r] = true
		f.dial(0, r)
	}
	s, lost := f.dial(0, gone+1), false
	f.Filter = func(from, to int, _ []byte) int {
		if from == 0 && to == gone+1 && !lost {
			lost = true
			return 0
		}
		return 1
	}
	s.Suspect(1, errConnectionLost)
	f.Until(20*testLimit, func() bool { return told > 0 })
	if s.Dead() {
		t.Errorf("a living rank is given up: %v", s.Err())
	}
}

// TestSuspectAnswersAnew suspects a rank for a second time, which dies after it has acknowledged a question and before the
// acknowledgement comes.
func TestSuspectAnswersAnew(t *testing.T) {
	f, told := suspects(t, true)
	s := f.open(0, 1)
	f.Settle()
	release := f.Detain(1, 0)
	s.Suspect(1, errConnectionLost)
	f.Settle()
	f.Cut[1] = true
	s.Suspect(1, errConnectionLost)
	release()
	f.Pass(testLimit / 5)
	if !s.Dead() || len(*told) != 1 {
		t.Errorf("dead %t, told %q", s.Dead(), *told)
	}
}
