package rma

import (
	"context"

	"github.com/xdprma/xdprma/internal/engine"
	"github.com/xdprma/xdprma/internal/wire"
)

// Fence ends the epochs that the last fence began and begins new ones, at all
// ranks of the window (MPI_Win_fence, section 11.5.1). It is collective. It blocks
// until what this rank has issued has completed everywhere and what others have
// issued to it has been applied. Until the next fence each rank may access every
// other one. An epoch in which nothing was issued does not count: a lock, a start,
// a post or Free may follow it.
//
// assert may combine ModeNoStore, ModeNoPut, ModeNoPrecede (no operations were
// issued since the last fence; ErrAssert if there were, which are completed all the
// same) and ModeNoSucceed (none will be until the next one: no epoch begins).
// Classes: ErrAssert, ErrRMASync while another epoch is open, ErrWin, and those of
// the operations that it completes.
func (w *Win) Fence(ctx context.Context, assert Assert) (err error) {
	defer w.handle(&err)
	e, now := w.poller.Lock()
	err = w.usable("fence")
	_, used := w.epoch.Fenced()
	if err == nil {
		err = w.epoch.Fence(assert)
	}
	ranks := w.touched
	if err == nil {
		for _, rank := range ranks {
			if w.targets[rank].used {
				atFence.ask(e, now, w.targets[rank].access)
			}
		}
	}
	w.poller.Unlock()
	if err != nil {
		return err
	}
	for _, rank := range ranks {
		if !w.used(rank) {
			continue
		}
		if fault := w.await(ctx, "fence", rank, atFence); err == nil {
			err = fault
		}
	}
	// Even after a failure: others wait for this rank.
	fault := w.inner.Barrier(ctx)
	if fault == nil && w.hints.Check {
		// All accesses of the epoch have come, and none of the next one yet.
		e, _ = w.poller.Lock()
		e.Ordered(w.own.ID())
		w.poller.UnlockQuiet()
		fault = w.inner.Barrier(ctx)
	}
	if err == nil && fault != nil {
		err = named("fence", NoRank, fault)
	}
	w.poller.Lock()
	for _, rank := range ranks {
		w.targets[rank].used = false
	}
	w.poller.Unlock()
	if err == nil && used && assert&ModeNoPrecede != 0 {
		err = newError("fence", ErrAssert, NoRank, "ModeNoPrecede is set, and operations were issued since the last fence")
	}
	return err
}

// Start begins an access epoch on the targets of a group, ranks of the window's
// communicator (MPI_Win_start, section 11.5.2). Each of them opens its window with
// Post. Start does not wait for that, nor do the calls that communicate: what is
// issued before the post is kept here and sent when it comes. With ModeNoCheck the
// posts have been made already, and with the same assertion. It connects to
// targets that it has not met, and blocks for nothing else. Classes: ErrAssert,
// ErrRank, ErrRMASync while another access epoch is open, ErrWin, ErrProcFailed.
func (w *Win) Start(ctx context.Context, targets []int, assert Assert) (err error) {
	defer w.handle(&err)
	w.poller.Lock()
	if err = w.usable("start"); err == nil {
		err = w.epoch.Start(targets, assert)
	}
	w.poller.Unlock()
	if err != nil {
		return err
	}
	if err = w.meet(ctx, targets); err != nil {
		w.poller.Lock()
		_ = w.epoch.Complete() // no epoch was opened
		w.poller.Unlock()
		return named("start", NoRank, err)
	}
	e, _ := w.poller.Lock()
	defer w.poller.UnlockQuiet()
	w.started = append(w.started[:0], targets...)
	if assert&ModeNoCheck == 0 {
		for _, rank := range targets {
			e.Start(w.targets[rank].access)
		}
	}
	return nil
}

// meet makes sure that there is an access to each rank.
func (w *Win) meet(ctx context.Context, ranks []int) error {
	for _, rank := range ranks {
		if _, err := w.access(ctx, rank); err != nil {
			return err
		}
	}
	return nil
}

// Complete ends the epoch that Start began (MPI_Win_complete, section 11.5.2). It
// blocks until its operations have completed at the origin: results are there, and
// buffers may be used again. Operations without a result may still be on their way,
// or wait for the post; that they fail at the target is told by the next call that
// completes something there. If ctx ends first, the epoch is over all the same, and
// results must be left alone until they have come; the error names a rank that has
// not posted. Classes: ErrRMASync without Start, ErrWin, ErrProcFailed, and those
// of the operations.
func (w *Win) Complete(ctx context.Context) (err error) {
	defer w.handle(&err)
	w.poller.Lock()
	if err = w.usable("complete"); err == nil {
		err = w.epoch.Complete()
	}
	targets := w.started
	w.poller.Unlock()
	if err != nil {
		return err
	}
	for _, rank := range targets {
		c := engine.Call{Code: wire.CodeComplete, Access: w.targets[rank].access}
		if fault := w.send(context.Background(), &c); err == nil && fault != nil {
			err = named("complete", rank, fault)
		}
	}
	for _, rank := range targets {
		if fault := w.awaitResults(ctx, rank); err == nil {
			err = fault
		}
	}
	w.poller.Lock()
	for _, rank := range targets {
		w.targets[rank].used = false
	}
	w.poller.UnlockQuiet()
	return err
}

// awaitResults waits until what was issued to a target has completed here.
func (w *Win) awaitResults(ctx context.Context, rank int) error {
	a := w.targets[rank].access
	fault := w.poller.Wait(ctx, (*engine.LocalWait)(a))
	if fault == nil {
		return w.outcome("complete", rank, a)
	}
	w.poller.Lock()
	unposted := a.Starting()
	w.poller.UnlockQuiet()
	if unposted && ctx.Err() != nil {
		return newError("complete", ErrTimeout, rank, "the target has not posted: %w", fault)
	}
	return named("complete", rank, fault)
}

// Post exposes this rank's window to the origins of a group, ranks of the window's
// communicator, each of which begins its epoch with Start (MPI_Win_post, section
// 11.5.2). It does not wait for them. Wait or Test ends the exposure. assert may
// combine ModeNoCheck (nobody is told: origins call Start afterwards, with the same
// assertion), ModeNoStore and ModeNoPut. It connects to origins that it has not
// met, and blocks while there is no room to send. Classes: ErrAssert, ErrRank,
// ErrRMASync while the window is exposed or locked, ErrWin, ErrProcFailed.
func (w *Win) Post(ctx context.Context, origins []int, assert Assert) (err error) {
	defer w.handle(&err)
	e, _ := w.poller.Lock()
	if err = w.usable("post"); err == nil {
		err = w.epoch.Post(origins, assert)
	}
	if err == nil && !e.Expose(w.own.ID(), true) {
		w.epoch.Waited()
		err = newError("post", ErrRMASync, NoRank, "the window is locked by another rank")
	}
	w.poller.Unlock()
	if err != nil {
		return err
	}
	posted := w.posted[:0]
	if err = w.meet(ctx, origins); err == nil {
		for _, rank := range origins {
			a := w.targets[rank].access
			if err = w.post(ctx, a, assert&ModeNoCheck != 0); err != nil {
				err = named("post", rank, err)
				break
			}
			posted = append(posted, a)
		}
	}
	w.poller.Lock()
	defer w.poller.UnlockQuiet()
	w.posted = posted
	if err != nil { // those that were told wait in vain no longer than this rank lives
		for _, a := range posted {
			e.GiveUpExposure(a)
		}
		w.endExposure(e)
		return named("post", NoRank, err)
	}
	return nil
}

func (w *Win) post(ctx context.Context, a *engine.Access, quiet bool) error {
	for {
		e, now := w.poller.Lock()
		if err := a.Err(); err != nil {
			w.poller.Unlock()
			return err
		}
		done := e.Post(now, a, quiet)
		e.Tick(now) // the caller may have nothing to wait for
		w.poller.Unlock()
		if done {
			return nil
		}
		if err := w.poller.Wait(ctx, &postRoom{e, a}); err != nil {
			return err
		}
	}
}

// postRoom is met when a post may be sent.
type postRoom struct {
	engine *engine.Engine
	access *engine.Access
}

func (r *postRoom) Met() bool { return r.engine.PostRoom(r.access) }

// endExposure records that the exposure is over. It is called with the engine's
// lock held.
func (w *Win) endExposure(e *engine.Engine) {
	w.epoch.Waited()
	e.Expose(w.own.ID(), false)
	w.posted = w.posted[:0]
}

// Wait ends the exposure that Post began (MPI_Win_wait, section 11.5.2). It blocks
// until every origin has called Complete and its operations have been applied. If
// ctx ends first, the window stays exposed: the error names an origin that has not
// completed, and Wait is to be called again. Classes: ErrRMASync without Post,
// ErrWin, ErrTimeout, ErrProcFailed if an origin died or left without completing.
func (w *Win) Wait(ctx context.Context) (err error) {
	defer w.handle(&err)
	e, now := w.poller.Lock()
	if err = w.usable("wait"); err == nil {
		err = w.epoch.CheckWait("wait")
	}
	if err != nil {
		w.poller.UnlockQuiet()
		return err
	}
	w.watch(e, now, w.posted, 1)
	w.exposure.Origins = append(w.exposure.Origins[:0], w.posted...)
	w.poller.Unlock()
	fault := w.poller.Wait(ctx, &w.exposure)
	e, now = w.poller.Lock()
	defer w.poller.UnlockQuiet()
	w.watch(e, now, w.posted, -1)
	if fault != nil {
		for _, a := range w.posted {
			if a.Exposing() && ctx.Err() != nil {
				return newError("wait", ErrTimeout, w.rankOf(a), "the origin has not completed: %w", fault)
			}
		}
		return named("wait", NoRank, fault)
	}
	return w.waited(e, "wait")
}

// Test is Wait that does not block (MPI_Win_test, section 11.5.2): it reports
// whether the exposure is over, and then ends it. Called again and again it comes
// true, be it because an origin is found to be dead. Classes as for Wait.
func (w *Win) Test() (over bool, err error) {
	defer w.handle(&err)
	e, now := w.poller.Lock()
	defer w.poller.Unlock()
	if err = w.usable("test"); err == nil {
		err = w.epoch.CheckWait("test")
	}
	if err != nil {
		return false, err
	}
	w.exposure.Origins = append(w.exposure.Origins[:0], w.posted...)
	if !w.exposure.Met() {
		for _, a := range w.posted {
			if s := a.Session(); s != nil && a.Exposing() {
				e.Expect(now, s)
			}
		}
		return false, nil
	}
	return true, w.waited(e, "test")
}

// waited ends an exposure to origins that have completed or cannot any more, and
// returns an error for those. It is called with the engine's lock held.
func (w *Win) waited(e *engine.Engine, name string) (err error) {
	for _, a := range w.posted {
		if !a.Exposing() {
			continue
		}
		e.GiveUpExposure(a)
		if err == nil {
			err = named(name, w.rankOf(a), a.Err())
		}
	}
	w.endExposure(e)
	return err
}

// watch has the deaths of the ranks that accesses lead to noticed while this rank
// waits for them.
func (w *Win) watch(e *engine.Engine, now int64, accesses []*engine.Access, delta int32) {
	for _, a := range accesses {
		if s := a.Session(); s != nil {
			e.Watch(now, s, delta)
		}
	}
}

// rankOf returns the rank that an access leads to.
func (w *Win) rankOf(a *engine.Access) int {
	for _, rank := range w.touched {
		if w.targets[rank].access == a {
			return rank
		}
	}
	return NoRank
}
