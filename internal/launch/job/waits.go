package job

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/xdprma/xdprma/internal/device"
)

// awaits is what a condition can be, that says in words what is waited for. It is called with the
// engine's lock held.
type awaits interface{ Awaits() string }

// idles is what a condition can be, that says whether what is waited for need not ever come. It is
// called as Awaits is.
type idles interface{ Idles() bool }

// levelOf returns how a wait is told of. Many are in order, as that for a rank which computes, so it is no
// warning before it has lasted for LongestSilence.
func levelOf(waited time.Duration, idle bool) slog.Level {
	if idle || waited < LongestSilence {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// lookAtWaits is how often a rank looks for calls that have waited for long.
const lookAtWaits = time.Second

// tellWaits has the log tell of calls that wait for long, and of locks of this rank's windows
// that others wait for: their ranks do not know who holds them. It is told of each again when it
// has waited for twice as long, or LongestSilence longer, first after some silence.
func (j *Job) tellWaits(ctx context.Context, silence time.Duration) {
	tick := time.NewTicker(min(lookAtWaits, silence))
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		j.tellLongWaits(now.Sub(last), silence)
		last = now
	}
}

// wait is what a call has waited for.
type wait struct {
	what   string
	idle   bool
	waited time.Duration
}

// tellLongWaits is tellWaits once. The last time is so long ago.
func (j *Job) tellLongWaits(ago, silence time.Duration) {
	absent := j.missing.Load() > 0 // a warning says which rank, and it is what calls wait for
	for _, c := range j.waits() {  // out of the engine's lock
		if !isDue(c.waited-ago, c.waited, silence) {
			continue
		}
		j.log.Log(context.Background(), levelOf(c.waited, c.idle || absent), "a call of this rank has waited for long", "rank", j.rank, "for", c.what, "waited", c.waited.Round(time.Millisecond))
	}
	e := j.poller.Lock()
	waits := e.LockWaits()
	now := e.Now
	j.poller.UnlockQuiet()
	for _, l := range waits {
		waited := time.Duration(now - l.Since)
		if isDue(waited-ago, waited, silence) {
			j.log.Log(context.Background(), levelOf(waited, false), "the lock of a window of this rank is waited for", "rank", j.rank, "window", l.Window,
				"by rank", l.Waiter, "held by ranks", l.Holders, "waited", waited.Round(time.Millisecond))
		}
	}
}

// waits returns what calls of this rank wait for, if they have for more than a second.
func (j *Job) waits() (calls []wait) {
	j.poller.EachWait(func(cond device.Condition, waited time.Duration) {
		c := wait{what: "other ranks", waited: waited}
		if a, ok := cond.(awaits); ok {
			c.what = a.Awaits()
		}
		if i, ok := cond.(idles); ok {
			c.idle = i.Idles()
		}
		calls = append(calls, c)
	})
	return calls
}

// Waits says in words what calls of this rank wait for, and for how long they have, if that is more than
// a second.
func (j *Job) Waits() (texts []string) {
	for _, c := range j.waits() {
		texts = append(texts, fmt.Sprintf("%s, since %v", c.what, c.waited.Round(time.Millisecond)))
	}
	return texts
}

// isDue reports whether a wait is to be told of that had lasted for before, and has for now, which
// is longer.
func isDue(before, now, silence time.Duration) bool {
	for due := silence; due <= now; due, silence = due+silence, min(2*silence, LongestSilence) {
		if due > before {
			return true
		}
	}
	return false
}
