package perf

import (
	"slices"
	"sync/atomic"
	"time"
)

// leastRounds is how many round trips an echo counts, however long they take.
const leastRounds = 20

// echo times round trips: the frames of an operation, and one that answers the last.
// With a pace it spins before each.
func (s *side) echo(p FloorPoint, sample *FloorSample) error {
	frames, length := s.layout(p.Bytes)
	h := newHistogram()
	round, losses := uint64(0), 0
	start := time.Now()
	warm, limit := warmUpTime, warmUpTime+s.plan.Duration
	for last := time.Duration(0); last < limit || h.count() < leastRounds; {
		begin := last
		for p.Pace > 0 && begin < last+p.Pace {
			begin = time.Since(start)
		}
		round++
		if err := s.sendCount(round, frames, length); err != nil {
			return err
		}
		answered, err := s.await(round, patience(losses))
		if err != nil {
			return err
		}
		now := time.Since(start)
		switch {
		case !answered:
			sample.Lost++
			if losses++; losses == mostLosses {
				return errSilence
			}
		case last >= warm:
			h.record(now - begin)
		}
		if answered {
			losses = 0
		}
		last = now
	}
	var err error
	sample.Latency, err = h.encode()
	return err
}

// await spins until the answer to a round arrives, and reports false if it was lost,
// which it takes for granted after a time.
func (s *side) await(round uint64, limit time.Duration) (bool, error) {
	deadline := time.Time{}
	for {
		for range spinsPerLook {
			numbers, err := s.arrivals()
			if err != nil {
				return false, err
			}
			if slices.Contains(numbers, round) {
				return true, nil
			}
		}
		switch now := time.Now(); {
		case deadline.IsZero():
			deadline = now.Add(limit)
		case now.After(deadline):
			return false, nil
		}
	}
}

// reflect answers each round once all its frames are there.
func (s *side) reflect(p FloorPoint, done *atomic.Bool) error {
	frames, _ := s.layout(p.Bytes)
	round, count := uint64(0), 0
	for !done.Load() {
		numbers, err := s.arrivals()
		if err != nil {
			return err
		}
		for _, number := range numbers {
			if number > round {
				round, count = number, 0
			}
			if number == round {
				count++
			}
			if count == frames {
				count = 0
				if err := s.sendCount(round, 1, replyLen); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
