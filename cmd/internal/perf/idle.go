package perf

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// idleTime is how long a rank is watched.
const idleTime = 4 * time.Second

// runIdle measures the processor time of ranks that are connected, have just
// communicated, and then neither call the library nor hear from each other.
func runIdle(r *rank, p Point) error {
	if r.id == 0 {
		p.Bytes = smallest
		if err := withLock(r, putOnce(r, p)); err != nil {
			return err
		}
	}
	time.Sleep(idleTime / 8) // what follows communication is not idleness yet
	before, start := processorTime(), time.Now()
	time.Sleep(idleTime)
	r.sample.Elapsed = time.Since(start)
	r.sample.CPU = processorTime() - before
	return nil
}

// processorTime is what this process's threads have used, in user and kernel mode.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(fmt.Sprintf("perf: getrusage: %v", err)) // it fails for bad arguments only
	}
	return time.Duration(unix.TimevalToNsec(u.Utime) + unix.TimevalToNsec(u.Stime))
}
