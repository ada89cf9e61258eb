package engine_test

import (
	"fmt"
	"slices"

	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
)

// counter returns the counter that a command names by "counter=2", as a call has it.
func (s *stage) counter(w []string) onesided.Counter {
	if !slices.ContainsFunc(w, isCounter) {
		return 0
	}
	return onesided.CounterAt(s.option(w, "counter"))
}

func isCounter(word string) bool { return len(word) > 8 && word[:8] == "counter=" }

// tellNotified shows the number of a counter of a rank.
func (s *stage) tellNotified(rank int, w []string) {
	i := s.option(w, "counter")
	s.say("      rank %d has %d at counter %d", rank, s.counters(rank).Read(i), i)
}

// waitNotified waits, as one who sleeps, for a counter of a rank to get to a number.
func (s *stage) waitNotified(rank int, w []string) {
	x := &windows.CounterWait{Counters: s.counters(rank), Which: []int{s.option(w, "counter")}, AtLeast: uint64(s.option(w, "number"))}
	x.Arm()
	s.await(fmt.Sprintf("wait_notified at rank %d", rank), func() bool { return x.Done() >= 0 }, func() string {
		x.Disarm()
		return fmt.Sprintf("counter %d has got to %d", x.Which[0], x.AtLeast)
	})
}

func (s *stage) counters(rank int) *windows.Counters {
	return s.ranks[rank].Windows().Lookup(stageWindow).Counters()
}
