package job

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/xdprma/xdprma/internal/device/poller"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/mpierr"
)

// awaits is what a condition can be, that says in words what is waited for, and which rank of the job, or
// NoRank. It is called with the engine's lock held.
type awaits interface {
	Awaits() (what string, rank int)
}

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
// has waited for twice as long, or LongestSilence longer, first after some silence. The rendezvous is told, too:
// there it is seen which rank keeps the others waiting, and warned of.
func (j *Job) tellWaits(ctx context.Context, silence time.Duration) {
	tick := time.NewTicker(min(lookAtWaits, silence))
	defer tick.Stop()
	var said []bootstrap.Wait
	for last := time.Now(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		said = j.tellLongWaits(ctx, now.Sub(last), silence, said)
		last = now
	}
}

// wait is what a call has waited for.
type wait struct {
	what   string
	rank   int // of the job, or NoRank
	idle   bool
	waited time.Duration
}

// tellLongWaits is tellWaits once. The last time is so long ago, and what the rendezvous was told then is said.
func (j *Job) tellLongWaits(ctx context.Context, ago, silence time.Duration, said []bootstrap.Wait) []bootstrap.Wait {
	calls := j.waits()
	e := j.poller.Lock()
	locks, now := e.LockWaits(), e.Now
	j.poller.UnlockQuiet()
	absent := j.absent.since()

	var list []bootstrap.Wait
	due := false
	add := func(rank, other int, what string, waited time.Duration) {
		if other == mpierr.NoRank || waited < silence {
			return
		}
		w := bootstrap.Wait{Rank: rank, For: other, What: what, Waited: waited, Told: bootstrap.QuietWait}
		if isDue(waited-ago, waited, silence) {
			due = true
			if waited >= 2*silence {
				w.Told = levelOf(waited, false)
			}
		}
		list = append(list, w)
	}
	for _, c := range calls {
		if !c.idle {
			add(j.rank, c.rank, c.what, c.waited)
		}
	}
	for _, rank := range slices.Sorted(maps.Keys(absent)) { // the same each time, or it would be said again
		if slices.ContainsFunc(list, func(w bootstrap.Wait) bool { return w.For == rank }) {
			continue // a call waits for it, which says more
		}
		add(j.rank, rank, fmt.Sprintf("rank %d to join", rank), time.Since(absent[rank]))
	}
	for _, l := range locks {
		for _, holder := range l.Holders {
			add(l.Waiter, holder, fmt.Sprintf("the lock of window %s at rank %d, which rank %d holds", l.Window, j.rank, holder), time.Duration(now-l.Since))
		}
	}
	summed := true
	if due || !slices.EqualFunc(list, said, sameWait) {
		asking, end := context.WithTimeout(ctx, lookAtWaits)
		summed = j.store.Waits(asking, list) == nil
		end()
	}

	for _, c := range calls { // out of the engine's lock
		if isDue(c.waited-ago, c.waited, silence) {
			idle := c.idle || len(absent) > 0 || summed && c.rank != mpierr.NoRank
			j.log.Log(ctx, levelOf(c.waited, idle), "a call of this rank has waited for long", "rank", j.rank, "for", c.what, "waited", c.waited.Round(time.Millisecond))
		}
	}
	for _, l := range locks {
		waited := time.Duration(now - l.Since)
		if isDue(waited-ago, waited, silence) {
			j.log.Log(ctx, levelOf(waited, summed), "the lock of a window of this rank is waited for", "rank", j.rank, "window", l.Window,
				"by rank", l.Waiter, "held by ranks", l.Holders, "waited", waited.Round(time.Millisecond))
		}
	}
	return list
}

func sameWait(a, b bootstrap.Wait) bool {
	return a.Rank == b.Rank && a.For == b.For && a.What == b.What
}

// absence has since when the log tells of ranks that have not joined.
type absence struct {
	mu    sync.Mutex
	ranks map[int]time.Time
}

func (a *absence) begin(rank int, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ranks == nil {
		a.ranks = map[int]time.Time{}
	}
	a.ranks[rank] = since
}

func (a *absence) end(rank int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.ranks, rank)
}

func (a *absence) since() map[int]time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.ranks)
}

// waits returns what calls of this rank wait for, if they have for more than a second.
func (j *Job) waits() (calls []wait) {
	j.poller.EachWait(func(cond poller.Condition, waited time.Duration) {
		c := wait{what: "other ranks", rank: mpierr.NoRank, waited: waited}
		if a, ok := cond.(awaits); ok {
			c.what, c.rank = a.Awaits()
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
