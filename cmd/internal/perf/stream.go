package perf

import (
	"sync/atomic"
	"time"
)

// acksPerWindow is how often in a window of a stream the receiver says how much
// has arrived.
const acksPerWindow = 4

// stream measures how much arrives of frames sent without pause.
func (s *side) stream(p FloorPoint, sample *FloorSample) error {
	length, bytes := s.payload(), s.payload()
	if p.Bytes > 0 {
		bytes = min(p.Bytes, s.payload()-opOverhead)
		length = opOverhead + bytes
	}
	f := &flow{side: s, length: length}
	if err := f.run(warmUpTime); err != nil {
		return err
	}
	arrived, start := f.arrived, time.Now()
	if err := f.run(s.plan.Duration); err != nil {
		return err
	}
	sample.MBPerS = float64(f.arrived-arrived) * float64(bytes) / time.Since(start).Seconds() / 1e6
	sample.Message, sample.Lost = f.batch()*bytes, f.lost
	return nil
}

// flow is the sender of a stream.
type flow struct {
	*side
	length              int
	sent, arrived, lost uint64
}

// batch is how many frames are sent at once.
func (f *flow) batch() int { return min(f.burst(), f.every) }

// run sends for as long as limit says, and until a window has arrived.
func (f *flow) run(limit time.Duration) error {
	start := time.Now()
	heard, losses := start, 0
	least := f.arrived + uint64(f.window())
	for {
		now := time.Now()
		if now.Sub(start) >= limit && f.arrived >= least {
			return nil
		}
		counts, err := f.arrivals()
		if err != nil {
			return err
		}
		for _, number := range counts {
			if number > f.arrived {
				f.arrived, heard, losses = number, now, 0
			}
		}
		batch := f.batch()
		if f.sent+uint64(batch) <= f.arrived+f.lost+uint64(f.window()) {
			if err := f.sendCount(0, batch, f.length); err != nil {
				return err
			}
			f.sent += uint64(batch)
			continue
		}
		if now.Sub(heard) > patience(losses) {
			f.lost, heard = f.sent-f.arrived, now
			if losses++; losses == mostLosses {
				return errSilence
			}
		}
	}
}

// acknowledge counts what arrives, and tells the sender.
func (s *side) acknowledge(_ FloorPoint, done *atomic.Bool) error {
	count, told := uint64(0), uint64(0)
	for !done.Load() {
		arrived, err := s.arrivals()
		if err != nil {
			return err
		}
		count += uint64(len(arrived))
		if count-told >= uint64(s.every) {
			told = count
			if err := s.sendCount(count, 1, replyLen); err != nil {
				return err
			}
		}
	}
	return nil
}
