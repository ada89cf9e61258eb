package rma

import (
	"context"
	"errors"

	"github.com/xdprma/xdprma/internal/engine"
	"github.com/xdprma/xdprma/userspace"
)

// Lock starts an access epoch on one target (MPI_Win_lock, section 11.5.3), kind
// being LockExclusive or LockShared. It waits for the lock where this process can
// load and store the target's memory, its own and that of SharedQuery. Elsewhere it
// does not: what is issued next travels with the request and takes effect once the
// lock is held. Locks are granted in the order in which requests arrive. With the
// assertion ModeNoCheck no lock is asked for. Several targets may be locked at once.
// It blocks while there is no room to send; if it fails, or ctx ends first, no epoch is
// open. Classes: ErrLocktype, ErrRank, ErrAssert, ErrRMASync, ErrWin, ErrProcFailed.
func (w *Win) Lock(ctx context.Context, kind LockType, target int, assert Assert) (err error) {
	defer w.handle(&err)
	w.poller.Lock()
	err = w.usable("lock")
	if err == nil {
		err = w.epoch.Lock(target, kind, assert)
	}
	w.poller.Unlock()
	if err != nil || assert&ModeNoCheck != 0 {
		return err
	}
	a, err := w.askLock(ctx, target, func(e *engine.Engine, now int64, a *engine.Access) bool {
		return e.Lock(now, a, kind == LockExclusive)
	})
	if err == nil && w.targets[target].loads {
		err = w.awaitLock(ctx, "lock", target)
	}
	if err != nil {
		e, now := w.poller.Lock()
		defer w.poller.Unlock()
		if a != nil {
			e.Leave(now, a)
		}
		_ = w.epoch.Unlock(target) // no epoch was opened
		return named("lock", target, err)
	}
	return nil
}

// askLock asks for the lock of a target; the result is nil if it cannot be reached.
func (w *Win) askLock(ctx context.Context, rank int, ask func(*engine.Engine, int64, *engine.Access) bool) (*engine.Access, error) {
	a, err := w.access(ctx, rank)
	for asked := false; err == nil && !asked; {
		e, now := w.poller.Lock()
		if err = w.usable("lock"); err == nil {
			asked = ask(e, now, a)
		}
		w.poller.Unlock()
		if err == nil && !asked {
			err = w.poller.Wait(ctx, (*engine.RoomWait)(a))
		}
	}
	return a, err
}

// awaitLock waits until a lock that was asked for is held. The error is also that of a
// refusal.
func (w *Win) awaitLock(ctx context.Context, name string, rank int) error {
	a := w.targets[rank].access
	e, now := w.poller.Lock()
	if !a.Held() {
		e.Flush(now, a)
	}
	if err := w.poller.WaitLocked(ctx, (*engine.LockWait)(a)); err != nil {
		return err
	}
	w.poller.Lock()
	defer w.poller.UnlockQuiet()
	if a.Held() {
		return nil
	}
	return failure(name, rank, a)
}

// Unlock ends the epoch that Lock started (MPI_Win_unlock, section 11.5.3). It
// blocks until everything issued in it has completed at the origin and at the
// target, and the lock is released. It returns the first error of an operation
// of the epoch. Classes: ErrRank, ErrRMASync, ErrWin, and those of the operations.
// If ctx ends first, the lock may be released already: call Unlock again to wait
// for the rest; nothing else can be issued to the target until then.
func (w *Win) Unlock(ctx context.Context, target int) (err error) {
	defer w.handle(&err)
	w.poller.Lock()
	err = w.usable("unlock")
	if err == nil {
		err = w.epoch.CheckUnlock(target)
	}
	_, assert, _ := w.epoch.Locked(target)
	w.poller.Unlock()
	if err != nil {
		return err
	}
	if assert&ModeNoCheck == 0 {
		err = w.askRelease(ctx, target)
	} else {
		w.push(target)
	}
	if err == nil {
		err = w.awaitRelease(ctx, target)
	}
	if err != nil {
		return named("unlock", target, err)
	}
	w.poller.Lock()
	defer w.poller.UnlockQuiet()
	err = w.released("unlock", target)
	if e := w.epoch.Unlock(target); err == nil {
		err = e
	}
	return err
}

// push sends what is outstanding to a target.
func (w *Win) push(rank int) {
	e, now := w.poller.Lock()
	if a := w.targets[rank].access; a != nil {
		e.Flush(now, a)
	}
	w.poller.Unlock()
}

// askRelease sends the request to release the lock at a target once everything
// issued there has been applied. It is sent once, however often an unlock is
// tried again.
func (w *Win) askRelease(ctx context.Context, rank int) error {
	t := &w.targets[rank]
	for {
		e, now := w.poller.Lock()
		if err := w.usable("unlock"); err != nil {
			w.poller.Unlock()
			return err
		}
		t.releasing = true // even if ctx ends before the target has been asked
		t.asked = t.access == nil || t.asked || e.Unlock(now, t.access)
		done := t.asked
		w.poller.Unlock()
		if done {
			return nil
		}
		if err := w.poller.Wait(ctx, (*engine.ReleaseWait)(t.access)); err != nil {
			return err
		}
	}
}

// awaitRelease waits until the lock has been released and everything issued
// under it has completed.
func (w *Win) awaitRelease(ctx context.Context, rank int) error {
	a := w.targets[rank].access
	if a == nil {
		return nil
	}
	return w.poller.Wait(ctx, (*engine.UnlockWait)(a))
}

// released records that an unlock is over and returns the first error of its
// epoch. It is called with the engine's lock held.
func (w *Win) released(name string, rank int) error {
	t := &w.targets[rank]
	t.releasing, t.asked, t.lazy, t.used = false, false, false, false
	if t.access == nil {
		return nil
	}
	t.access.Unlocked()
	return failure(name, rank, t.access)
}

// failure returns the first error of an operation on a since the last call.
func failure(name string, rank int, a *engine.Access) error {
	err := a.TakeError()
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) && e.Class != ErrProcFailed {
		name = e.Op // which was refused
	}
	return named(name, rank, err)
}

// LockAll starts an access epoch on all targets with shared locks
// (MPI_Win_lock_all, section 11.5.3). It is not collective. It waits for the locks of
// those targets whose memory this process can load and store, as Lock does; the lock of
// another one is asked for with the first operation there. If it fails, or ctx ends
// first, no epoch is open. It does not wait behind requests that have not waited
// for as long as this epoch is open, or two that lock all could wait for each other.
// Classes: ErrAssert, ErrRMASync, ErrWin.
func (w *Win) LockAll(ctx context.Context, assert Assert) (err error) {
	defer w.handle(&err)
	_, now := w.poller.Lock()
	if err = w.usable("lock_all"); err == nil {
		err = w.epoch.LockAll(assert)
	}
	if err == nil {
		w.began = now
	}
	w.poller.UnlockQuiet()
	if err != nil || assert&ModeNoCheck != 0 {
		return err
	}
	for r := range w.targets {
		if err == nil && w.targets[r].loads {
			err = w.lockOneOfAll(ctx, r)
		}
	}
	if err == nil {
		return nil
	}
	e, now := w.poller.Lock()
	defer w.poller.Unlock()
	for r := range w.targets {
		if t := &w.targets[r]; t.lazy {
			e.Leave(now, t.access)
			t.lazy, t.used = false, false
		}
	}
	_ = w.epoch.UnlockAll() // no epoch was opened
	return named("lock_all", NoRank, err)
}

// lockOneOfAll waits for the lock of a target, unless that is dead.
func (w *Win) lockOneOfAll(ctx context.Context, rank int) error {
	a, err := w.askLock(ctx, rank, func(e *engine.Engine, now int64, a *engine.Access) bool {
		return e.LockPassing(now, a, w.began)
	})
	if err == nil {
		err = w.awaitLock(ctx, "lock_all", rank)
	}
	e, now := w.poller.Lock()
	defer w.poller.Unlock()
	if err == nil {
		w.targets[rank].lazy, w.targets[rank].used = true, true
		return nil
	}
	if a != nil {
		e.Leave(now, a)
	}
	if ClassOf(err) == ErrProcFailed && rank != w.comm.Rank() {
		return nil // what is issued there will say so
	}
	return err
}

// UnlockAll ends the epoch that LockAll started (MPI_Win_unlock_all, section
// 11.5.3). It blocks as Unlock does, for all targets that were accessed, and
// returns the first error. If ctx ends first, call it again, as for Unlock.
func (w *Win) UnlockAll(ctx context.Context) (err error) {
	defer w.handle(&err)
	w.poller.Lock()
	err = w.usable("unlock_all")
	assert, all := w.epoch.LockedAll()
	if err == nil && !all {
		err = w.epoch.UnlockAll() // which says why not
	}
	ranks := w.touched
	w.poller.Unlock()
	if err != nil {
		return err
	}
	// All targets are asked before any is waited for.
	for _, rank := range ranks {
		switch {
		case !w.used(rank):
		case assert&ModeNoCheck != 0:
			w.push(rank)
		default:
			if err := w.askRelease(ctx, rank); err != nil {
				return named("unlock_all", rank, err)
			}
		}
	}
	for _, rank := range ranks {
		if !w.used(rank) {
			continue
		}
		if err := w.awaitRelease(ctx, rank); err != nil {
			return named("unlock_all", rank, err)
		}
	}
	w.poller.Lock()
	defer w.poller.UnlockQuiet()
	for _, rank := range ranks {
		if !w.targets[rank].used {
			continue
		}
		if e := w.released("unlock_all", rank); err == nil {
			err = e
		}
	}
	if e := w.epoch.UnlockAll(); err == nil {
		err = e
	}
	return err
}

// used reports whether a target was accessed in this epoch. One that was not is
// none of the epoch's business, though it may have died since an earlier one.
func (w *Win) used(rank int) bool {
	w.poller.Lock()
	defer w.poller.UnlockQuiet()
	return w.targets[rank].used
}

// A completion is what a flush asks for at a target, and waits for.
type completion struct {
	ask  func(e *engine.Engine, now int64, a *engine.Access)
	done func(a *engine.Access) userspace.Condition
}

var (
	atTarget = completion{(*engine.Engine).Flush, flushWait}
	atFence  = completion{(*engine.Engine).FlushUnmarked, flushWait}
	atOrigin = completion{(*engine.Engine).FlushLocal, func(a *engine.Access) userspace.Condition { return (*engine.LocalWait)(a) }}
)

func flushWait(a *engine.Access) userspace.Condition { return (*engine.FlushWait)(a) }

// Flush blocks until every operation that this rank has issued to target on the
// window has completed at the origin and at the target (MPI_Win_flush, section
// 11.5.4), and returns the first of their errors. It needs a passive target
// epoch. Classes: ErrRank, ErrRMASync, ErrWin, and those of the operations. If
// ctx ends first, the operations stay outstanding and the epoch open.
func (w *Win) Flush(ctx context.Context, target int) error {
	return w.report(w.flush(ctx, "flush", target, atTarget))
}

// FlushLocal blocks until every operation issued to target has completed at the
// origin: its buffers may be used again (MPI_Win_flush_local, section 11.5.4).
// Errors are as for Flush, as far as they are known by then.
func (w *Win) FlushLocal(ctx context.Context, target int) error {
	return w.report(w.flush(ctx, "flush_local", target, atOrigin))
}

func (w *Win) flush(ctx context.Context, name string, rank int, done completion) error {
	e, now := w.poller.Lock()
	a, err := w.flushable(name, rank)
	if err != nil || a == nil {
		w.poller.UnlockQuiet()
		return err
	}
	done.ask(e, now, a)
	if err := w.poller.WaitLocked(ctx, done.done(a)); err != nil {
		return named(name, rank, err)
	}
	return w.outcome(name, rank, a)
}

// outcome returns the first error at a target since the last look.
func (w *Win) outcome(name string, rank int, a *engine.Access) error {
	if !a.Failed() {
		return nil
	}
	w.poller.Lock()
	defer w.poller.UnlockQuiet()
	return failure(name, rank, a)
}

// flushable returns the access to flush, nil if there is nothing to do.
func (w *Win) flushable(name string, rank int) (*engine.Access, error) {
	if err := w.usable(name); err != nil {
		return nil, err
	}
	if rank == ProcNull {
		return nil, named(name, NoRank, w.epoch.FlushAll())
	}
	if err := w.epoch.Flush(rank); err != nil {
		return nil, named(name, rank, err)
	}
	return w.targets[rank].access, nil
}

// await waits for something at a target and returns the first error there.
func (w *Win) await(ctx context.Context, name string, rank int, done completion) error {
	a := w.targets[rank].access
	if err := w.poller.Wait(ctx, done.done(a)); err != nil {
		return named(name, rank, err)
	}
	return w.outcome(name, rank, a)
}

// FlushAll is Flush for all targets (MPI_Win_flush_all, section 11.5.4).
func (w *Win) FlushAll(ctx context.Context) error {
	return w.report(w.flushAll(ctx, "flush_all", atTarget))
}

// FlushLocalAll is FlushLocal for all targets (MPI_Win_flush_local_all, section
// 11.5.4).
func (w *Win) FlushLocalAll(ctx context.Context) error {
	return w.report(w.flushAll(ctx, "flush_local_all", atOrigin))
}

func (w *Win) flushAll(ctx context.Context, name string, done completion) error {
	e, now := w.poller.Lock()
	err := w.usable(name)
	if err == nil {
		err = w.epoch.FlushAll()
	}
	ranks := w.touched
	if err == nil {
		for _, rank := range ranks {
			if w.targets[rank].used {
				done.ask(e, now, w.targets[rank].access)
			}
		}
	}
	w.poller.Unlock()
	if err != nil {
		return named(name, NoRank, err)
	}
	var first error
	for _, rank := range ranks {
		if !w.used(rank) {
			continue
		}
		if err := w.await(ctx, name, rank, done); first == nil {
			first = err
		}
	}
	return first
}

// Sync orders this process's own loads and stores of the window's memory with
// the accesses of others (MPI_Win_sync, section 11.5.4). It completes nothing and
// does not block. For the race detector it is a point of synchronisation with
// everything that has been applied to the window.
func (w *Win) Sync() error {
	w.poller.Lock()
	err := w.usable("sync")
	w.poller.UnlockQuiet()
	return w.report(err)
}
