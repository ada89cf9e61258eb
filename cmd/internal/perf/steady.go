package perf

import "slices"

// Bounds of what counts as the same speed of the machine.
const (
	steadyFloors = 1.25 // by what factor the floors before and after a round may differ
	steadyRatios = 1.25 // and its ratio to them from the median of all rounds
)

// steady returns the rounds in which the machine kept its speed, and nil if all of
// them count. A virtual machine's processors can be two or three times as fast in
// one second as in the next, so a sample and a floor that were not taken at the
// same speed say nothing about each other. floors are those before, between and
// after the samples; all count if no round is steady.
func steady(samples []*Sample, floors []*FloorSample) (kept []int) {
	if len(samples) < 2 || len(floors) != len(samples)+1 {
		return nil
	}
	type round struct {
		i     int
		ratio float64
	}
	var rounds []round
	var ratios []float64
	for i, s := range samples {
		before, after := floors[i].value(), floors[i+1].value()
		if before <= 0 || after <= 0 || max(before, after)/min(before, after) > steadyFloors {
			continue
		}
		ratio := s.value() / ((before + after) / 2)
		rounds, ratios = append(rounds, round{i, ratio}), append(ratios, ratio)
	}
	if len(rounds) == 0 {
		return nil
	}
	slices.Sort(ratios)
	middle := ratios[len(ratios)/2]
	for _, r := range rounds {
		if r.ratio <= middle*steadyRatios && r.ratio >= middle/steadyRatios {
			kept = append(kept, r.i)
		}
	}
	return kept
}

// during returns the samples of rounds.
func during(samples []*Sample, rounds []int) (kept []*Sample) {
	for _, i := range rounds {
		kept = append(kept, samples[i])
	}
	return kept
}

// around returns the floors before and after rounds, if there are any.
func around(floors []*FloorSample, rounds []int) (kept []*FloorSample) {
	if len(floors) == 0 {
		return nil
	}
	for _, i := range rounds {
		kept = append(kept, floors[i], floors[i+1])
	}
	return kept
}

// value is the time of an operation, or what grows with it.
func (s *Sample) value() float64 {
	if len(s.Latency) > 0 {
		return medianOf(s.Latency)
	}
	return float64(s.Elapsed) / float64(max(s.Ops, 1))
}

func (s *FloorSample) value() float64 {
	if s.MBPerS > 0 {
		return 1 / s.MBPerS
	}
	return medianOf(s.Latency)
}

// medianOf returns the median of an encoded histogram, 0 if it is damaged, which
// Summarize reports.
func medianOf(latency []byte) float64 {
	h := newHistogram()
	if h.merge(latency) != nil {
		return 0
	}
	return h.microseconds(50)
}
