package poller

import "time"

// crowd knows whether other threads compute on the processor of a caller that polls. Yields tell:
// a thread that polls, too, gives the processor back after microseconds, one that computes keeps
// it for a slice of the scheduler's, mostly more than a millisecond. Where somebody computes, the caller
// polls without yielding, for less long, and sleeps then: the kernel runs a thread that wakes up
// ahead of one that computes. Now and then the caller yields again, to find out whether that has
// ended. A poller has one crowd, whichever processors its callers are on. crowd has no clock; times
// are in nanoseconds.
type crowd struct {
	until int64 // it is taken for crowded until then
	pause int64 // how long it is before the next yield, after one more that loses the processor; 0: none of the last yields did
}

const (
	lostAfter  = time.Millisecond // who has the processor back only then has lost it to one that computes
	firstPause = 20 * time.Millisecond
	mostPause  = 640 * time.Millisecond // so at most a few hundredths of the time go into yields
	crowdSpin  = 20 * time.Microsecond  // of polling where somebody computes; about what falling asleep and waking up take
	crowdMost  = 150 * time.Microsecond // the same, if the frame usually comes by half of it
)

// here reports whether others are taken to compute.
func (c *crowd) here(now int64) bool { return now < c.until }

// note learns how long a yield took, and reports whether others are taken to compute now. One that
// lost the processor does not show that: a rank that polls has something to compute itself at times.
// Two with few others between do, however much time is between: if it is much, a caller that is
// mistaken polls for less long than it might, for mostPause at most.
func (c *crowd) note(from, to int64) bool {
	if to-from < int64(lostAfter) {
		if c.pause -= c.pause / 8; c.pause < int64(firstPause)/2 {
			c.pause = 0
		}
		return false
	}
	if c.pause > 0 {
		c.until = to + c.pause
	}
	c.pause = min(max(2*c.pause, int64(firstPause)), int64(mostPause))
	return c.here(to)
}
