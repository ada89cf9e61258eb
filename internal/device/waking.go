package device

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	wakeSamples = 8
	wakeRest    = 200 * time.Microsecond // before a thread is woken, so that its processor sleeps, too
	defaultWake = 20 * time.Microsecond  // where it cannot be measured
	dearestWake = 500 * time.Microsecond // where it takes longer, the machine is busy
)

// WakeTime returns how long it takes on this machine to wake a thread that sleeps as a driver does. It
// measures that once in a process, which blocks for some milliseconds.
func WakeTime() time.Duration { return wakes() }

var wakes = sync.OnceValue(func() time.Duration {
	var samples []time.Duration
	for range wakeSamples {
		if d, ok := wakeOnce(); ok {
			samples = append(samples, d)
		}
	}
	if len(samples) == 0 {
		return defaultWake
	}
	slices.Sort(samples)
	return min(samples[len(samples)/4], dearestWake) // in the others, other threads may have had the processors
})

// wakeOnce wakes a thread, and reports false if it was not asleep.
func wakeOnce() (took time.Duration, ok bool) {
	var s sleeper
	if s.open() != nil {
		return 0, false
	}
	defer func() { _ = s.close() }()
	up := make(chan time.Time, 1)
	go func() {
		s.sleep(time.Second, unix.POLLIN)
		up <- time.Now()
	}()
	time.Sleep(wakeRest)
	begin := time.Now()
	s.wake()
	took = (<-up).Sub(begin)
	return took, s.sleeps.Load() == 1 && s.wakeups.Load() == 1 && took > 0
}
