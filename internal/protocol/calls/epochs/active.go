package epochs

import (
	"fmt"

	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// Fence ends the epochs that the last fence began and begins new ones, at all ranks of
// the window. It completes the operations that this rank has issued, and the ranks meet.
// In checking mode they meet twice, since no access of the next epoch may have come when
// the accesses of this one are forgotten. A fence that is given up meets the other ranks
// all the same, so that they learn of its failure.
func (w *Window) Fence(how window.Assert) Call {
	return Call{w: w, name: "fence", kind: fence, done: atFence, how: how}
}

func (c *Call) stepFence(t Turn) Status {
	if c.stage == starting {
		_, c.used = c.w.epoch.Fenced()
		if err := c.w.epoch.Fence(c.how); err != nil {
			return c.end(err)
		}
		c.ranks = c.w.touched
		c.askAll(t)
	}
	if c.awaitAll() == Waits {
		return Waits
	}
	return c.gather(gathering) // even after a failure: others wait for this rank
}

// metFence goes on with a fence after a barrier that has ended with err.
func (c *Call) metFence(t Turn, err error) Status {
	if err == nil && c.w.Check && c.stage == gathering {
		t.Ordered(c.w.Own.ID()) // all accesses of the epoch have come, and none of the next one yet
		return c.gather(ordering)
	}
	for _, rank := range c.ranks {
		c.w.targets[rank].used = false
	}
	if c.used && c.how&window.ModeNoPrecede != 0 {
		c.fail(mpierr.New(c.name, mpierr.Assert, mpierr.NoRank, "ModeNoPrecede is set, and operations were issued since the last fence"))
	}
	return Over
}

// Start begins an access epoch on the targets of a group, each of which opens its window
// with Post.
func (w *Window) Start(t Turn, targets []int, how window.Assert) error {
	if err := w.Usable("start"); err != nil {
		return err
	}
	if err := w.epoch.Start(targets, how); err != nil {
		return err
	}
	w.started, w.completing = append(w.started[:0], targets...), false
	for _, rank := range targets {
		if a := w.access(t, rank); how&window.ModeNoCheck == 0 {
			t.Start(a)
		} else {
			t.StartPosted(a)
		}
	}
	return nil
}

// Complete ends the epoch that Start began. It waits until operations have completed at the
// origin. Given up, the epoch is over all the same; called again, it waits for the rest.
func (w *Window) Complete() Call { return Call{w: w, name: "complete", kind: complete} }

func (c *Call) stepComplete(t Turn) Status {
	w := c.w
	if c.stage == starting {
		again := w.completing
		if err := w.epoch.Complete(); err != nil && !again {
			return c.end(err)
		}
		c.ranks, w.completing = w.started, true
		for _, rank := range c.ranks {
			if !again {
				c.fail(named(c.name, rank, t.Complete(w.targets[rank].access)))
				w.targets[rank].used = false
			}
		}
		c.stage = awaiting
	}
	for ; c.next < len(c.ranks); c.next++ {
		rank := c.ranks[c.next]
		a := w.targets[rank].access
		if until := (*onesided.LocalWait)(a); !until.Met() {
			return c.await(until)
		}
		c.fail(failure(c.name, rank, a))
	}
	w.completing = false
	return Over
}

func (c *Call) giveUpComplete(why error) Status {
	rank := c.ranks[c.next]
	err := mpierr.Named(c.name, rank, why)
	if c.w.targets[rank].access.Starting() && err.Class == mpierr.Timeout {
		err.Err = fmt.Errorf("the target has not posted: %w", why)
	}
	return c.end(err)
}

// Post exposes this rank's window to the origins of a group.
func (w *Window) Post(t Turn, origins []int, how window.Assert) error {
	if err := w.Usable("post"); err != nil {
		return err
	}
	if err := w.epoch.Post(origins, how); err != nil {
		return err
	}
	if !t.Expose(w.Own.ID(), true) {
		w.epoch.Waited()
		return mpierr.New("post", mpierr.RMASync, mpierr.NoRank, "the window is locked by another rank")
	}
	w.posted = w.posted[:0]
	w.exposures++
	for _, rank := range origins {
		a := w.access(t, rank)
		if err := a.Err(); err != nil { // nobody has been told
			w.posted = w.posted[:0]
			w.endExposure(t)
			return named("post", rank, err)
		}
		w.posted = append(w.posted, a)
	}
	for _, a := range w.posted {
		t.Post(a, how&window.ModeNoCheck != 0)
	}
	return nil
}

// endExposure records that the exposure is over.
func (w *Window) endExposure(t Turn) {
	if w.watchers > 0 {
		w.watch(-1)
	}
	w.watchers = 0
	w.epoch.Waited()
	t.Expose(w.Own.ID(), false)
	w.posted = w.posted[:0]
}

// Wait ends the exposure that Post began, once every origin has completed. Given up, it
// leaves the window exposed.
func (w *Window) Wait() Call { return Call{w: w, name: "wait", kind: wait} }

func (c *Call) stepWait(t Turn) Status {
	w := c.w
	if c.stage == starting {
		if err := w.epoch.CheckWait(c.name); err != nil {
			return c.end(err)
		}
		if w.watchers == 0 {
			w.watch(1)
		}
		w.watchers++
		c.stage, c.exposure = awaiting, w.exposures
	}
	if !c.exposes() {
		return Over // another call has ended it
	}
	for _, a := range w.posted {
		if until := (*onesided.ExposureWait)(a); !until.Met() {
			return c.await(until)
		}
	}
	return c.end(w.waited(t, c.name))
}

// exposes reports whether the exposure that the call ends is not over yet.
func (c *Call) exposes() bool { return c.w.exposures == c.exposure && c.w.watchers > 0 }

func (c *Call) giveUpWait(t Turn, why error) Status {
	w := c.w
	if !c.exposes() {
		return Over
	}
	if w.watchers--; w.watchers == 0 {
		w.watch(-1)
	}
	err := mpierr.Named(c.name, mpierr.NoRank, why)
	for _, a := range w.posted {
		if a.Exposing() && err.Class == mpierr.Timeout {
			err.Rank, err.Err = w.rankOf(a), fmt.Errorf("the origin has not completed: %w", why)
			break
		}
	}
	return c.end(err)
}

// Test is Wait that does not wait: it reports whether the exposure is over, and then ends
// it. Called again and again it comes true, be it because an origin is found to be dead.
func (w *Window) Test(t Turn) (over bool, err error) {
	if err := w.Usable("test"); err != nil {
		return false, err
	}
	if err := w.epoch.CheckWait("test"); err != nil {
		return false, err
	}
	over = true
	for _, a := range w.posted {
		over = over && (*onesided.ExposureWait)(a).Met()
	}
	if over {
		return true, w.waited(t, "test")
	}
	for _, a := range w.posted {
		if s := a.Session(); s != nil && a.Exposing() {
			s.Expect()
		}
	}
	return false, nil
}

// waited ends an exposure to origins that have completed or cannot any more, and returns
// an error for origins that cannot.
func (w *Window) waited(t Turn, name string) (err error) {
	for _, a := range w.posted {
		if !a.Exposing() {
			continue
		}
		t.GiveUpExposure(a)
		if err == nil {
			err = named(name, w.rankOf(a), a.Err())
		}
	}
	w.endExposure(t)
	return err
}

// watch has the deaths of the origins noticed while this rank waits for them.
func (w *Window) watch(delta int32) {
	for _, a := range w.posted {
		if s := a.Session(); s != nil {
			if s.Watch(delta); delta > 0 {
				s.Await()
			}
		}
	}
}
