package perf

import (
	"sync/atomic"
	"time"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/rma"
)

const (
	// stopTime is how long a target is stopped, and stopMargin how much longer its
	// origin goes on at least.
	stopTime, stopMargin = 3 * time.Second, time.Second
	// stopDelay is how long after its announcement the target has surely stopped, on a slow machine, too.
	stopDelay = 100 * time.Millisecond
	// lookPause is how often a target looks whether it is to go on.
	lookPause = 2 * time.Millisecond
)

// The words at the window's end, by which origin and target of a progress test
// agree. The first is the phase, which the origin puts; the others say when the
// target was stopped.
const (
	phaseWord = iota
	fromWord
	toWord
	agreedWords
)

// The phases.
const (
	preparing = iota
	measuring
	over
)

// progress makes the test of who serves a target that does not call the library
// while it is under a load. Between two operations of the origin lies pause,
// counted from start to start.
func progress(l load, pause time.Duration) func(*rank, Point) error {
	return func(r *rank, p Point) error {
		if r.id != 0 {
			return r.bear(l)
		}
		return withLock(r, func() error {
			step := fetchAndOpOnce(r, p)
			if err := warmUp(step); err != nil {
				return err
			}
			if err := r.tell(measuring); err != nil {
				return err
			}
			var err error
			if l.stops {
				err = r.whileStopped(step, pause)
			} else {
				err = r.timed(step, 1, pause, r.record)
			}
			if err != nil {
				return err
			}
			return r.tell(over)
		})
	}
}

// whileStopped is timed for a target that is stopped for a while. Only passes count
// that were under way then; it also counts those among them that began and finished
// then. Both ranks must be on one machine.
func (r *rank) whileStopped(step pass, pause time.Duration) error {
	r.duration = max(r.duration, stopTime+stopMargin)
	room := int(r.duration/pause) + 1
	if r.plan.Iterations > 0 {
		room = r.plan.Iterations
	}
	type span struct{ begin, end int64 }
	spans := make([]span, 0, room)
	start := machineTime()
	err := r.timed(step, 1, pause, func(begin, end time.Duration) {
		spans = append(spans, span{start + begin.Nanoseconds(), start + end.Nanoseconds()})
	})
	if err != nil {
		return err
	}
	var bounds [2]int64
	if err := r.win.Get(buffer.Of(bounds[:]), r.peer(), rma.At(r.agreedAt(fromWord))); err != nil {
		return err
	}
	if err := r.flush(); err != nil {
		return err
	}
	from, to := bounds[0], bounds[1]
	finished := uint64(0)
	for _, s := range spans {
		if s.end > from && s.begin < to {
			r.histogram.record(time.Duration(s.end - s.begin))
		}
		if s.begin >= from+stopDelay.Nanoseconds() && s.end <= to {
			finished++
		}
	}
	r.sample.WhileStopped = &finished
	return nil
}

// agreedAt is the displacement of a word at the window's end.
func (r *rank) agreedAt(word int) int64 { return int64(r.room + 8*word) }

// tell says to the target what phase begins.
func (r *rank) tell(phase int64) error {
	r.words.one = phase
	defer func() { r.words.one = 1 }()
	if err := r.win.Put(buffer.Value(&r.words.one), r.peer(), rma.At(r.agreedAt(phaseWord))); err != nil {
		return err
	}
	return r.flush()
}

// bear keeps this process under a load until the origin says that it is over. It
// calls nothing of the library.
func (r *rank) bear(l load) error {
	words := rma.Slice[int64](r.win.Memory()[r.room:])[:agreedWords]
	p := l.start(stopTime, func(from, to int64) {
		atomic.StoreInt64(&words[fromWord], from)
		atomic.StoreInt64(&words[toWord], to)
	})
	await := func(phase int64) {
		for atomic.LoadInt64(&words[phaseWord]) < phase {
			time.Sleep(lookPause)
		}
	}
	await(measuring)
	p.begin()
	await(over)
	err := p.finish()
	for i := range words {
		atomic.StoreInt64(&words[i], 0)
	}
	return err
}
