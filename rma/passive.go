package rma

import (
	"context"

	"github.com/xdprma/xdprma/internal/engine"
)

// Lock starts an access epoch on one target (MPI_Win_lock, section 11.5.3), kind
// being LockExclusive or LockShared. It does not wait for the lock, except on this
// rank's own window: what is issued next travels with the request and takes
// effect once the lock is held. Locks are granted in the order in which requests
// arrive. With the assertion ModeNoCheck no lock is asked for. Several targets
// may be locked at once. It blocks while there is no room to send. Classes:
// ErrLocktype, ErrRank, ErrAssert, ErrRMASync, ErrWin, ErrProcFailed.
func (w *Win) Lock(ctx context.Context, kind LockType, target int, assert Assert) error {
	e, now := w.poller.Lock()
	err := w.epoch.Lock(target, kind, assert)
	if w.freed {
		err = w.gone("lock")
	}
	w.poller.Unlock()
	if err != nil || assert&ModeNoCheck != 0 {
		return err
	}
	a, err := w.access(ctx, target)
	for asked := false; err == nil && !asked; {
		e, now = w.poller.Lock()
		asked = e.Lock(now, a, kind == LockExclusive)
		w.poller.Unlock()
		if !asked {
			err = w.poller.Wait(ctx, (*engine.RoomWait)(a))
		}
	}
	if err != nil {
		w.poller.Lock()
		_ = w.epoch.Unlock(target) // no epoch was opened
		w.poller.Unlock()
		return named("lock", target, err)
	}
	if target == w.comm.Rank() {
		return w.await(ctx, "lock", target, (*engine.LockWait)(a))
	}
	return nil
}

// Unlock ends the epoch that Lock started (MPI_Win_unlock, section 11.5.3). It
// blocks until everything issued in it has completed at the origin and at the
// target, and the lock is released. It returns the first error of an operation
// of the epoch. Classes: ErrRank, ErrRMASync, and those of the operations. If ctx
// ends first, the epoch stays open.
func (w *Win) Unlock(ctx context.Context, target int) error {
	w.poller.Lock()
	err := w.singly(target)
	w.poller.Unlock()
	if err != nil {
		return err
	}
	_, assert, _ := w.locked(target)
	if assert&ModeNoCheck != 0 {
		err = w.flush(ctx, "unlock", target)
	} else {
		err = w.release(ctx, "unlock", target)
	}
	if ctx.Err() != nil && err == ctx.Err() {
		return err
	}
	w.poller.Lock()
	defer w.poller.Unlock()
	if e := w.epoch.Unlock(target); err == nil {
		err = e
	}
	return err
}

func (w *Win) locked(target int) (LockType, Assert, bool) {
	w.poller.Lock()
	defer w.poller.Unlock()
	return w.epoch.Locked(target)
}

// singly returns nil if target is locked by Lock.
func (w *Win) singly(target int) error {
	if w.freed {
		return w.gone("unlock")
	}
	return w.epoch.CheckUnlock(target)
}

// release gives up the lock at a target once everything issued there has
// completed.
func (w *Win) release(ctx context.Context, name string, rank int) error {
	a, err := w.askRelease(ctx, rank)
	if err != nil || a == nil {
		return err
	}
	return w.released(ctx, name, rank, a)
}

// askRelease sends the request to release the lock.
func (w *Win) askRelease(ctx context.Context, rank int) (*engine.Access, error) {
	for {
		e, now := w.poller.Lock()
		a := w.targets[rank].access
		if a == nil {
			w.poller.Unlock()
			return nil, nil
		}
		done := e.Unlock(now, a)
		w.poller.Unlock()
		if done {
			return a, nil
		}
		if err := w.poller.Wait(ctx, (*engine.ReleaseWait)(a)); err != nil {
			return nil, err
		}
	}
}

func (w *Win) released(ctx context.Context, name string, rank int, a *engine.Access) error {
	if err := w.poller.Wait(ctx, (*engine.UnlockWait)(a)); err != nil {
		return err
	}
	w.poller.Lock()
	defer w.poller.Unlock()
	a.Unlocked()
	return failure(name, rank, a)
}

// failure returns the first error of an operation on a since the last call.
func failure(name string, rank int, a *engine.Access) error {
	err := a.TakeError()
	if err == nil {
		return nil
	}
	if ClassOf(err) == ErrProcFailed {
		return named(name, rank, err)
	}
	return err
}

// LockAll starts an access epoch on all targets with shared locks
// (MPI_Win_lock_all, section 11.5.3). It is not collective and does not block:
// the lock of a target is asked for with the first operation there. Classes:
// ErrAssert, ErrRMASync, ErrWin.
func (w *Win) LockAll(_ context.Context, assert Assert) error {
	w.poller.Lock()
	defer w.poller.Unlock()
	if w.freed {
		return w.gone("lock_all")
	}
	return w.epoch.LockAll(assert)
}

// UnlockAll ends the epoch that LockAll started (MPI_Win_unlock_all, section
// 11.5.3). It blocks as Unlock does, for all targets that were accessed, and
// returns the first error.
func (w *Win) UnlockAll(ctx context.Context) error {
	w.poller.Lock()
	assert, all := w.epoch.LockedAll()
	ranks := w.touched
	err := error(nil)
	if w.freed {
		err = w.gone("unlock_all")
	} else if !all {
		err = w.epoch.UnlockAll()
	}
	w.poller.Unlock()
	if err != nil {
		return err
	}
	if assert&ModeNoCheck != 0 {
		err = w.flushAll(ctx, "unlock_all")
	} else {
		err = w.releaseAll(ctx, ranks)
	}
	if ctx.Err() != nil && err == ctx.Err() {
		return err
	}
	w.poller.Lock()
	defer w.poller.Unlock()
	if e := w.epoch.UnlockAll(); err == nil {
		err = e
	}
	return err
}

// releaseAll asks all targets before it waits for any.
func (w *Win) releaseAll(ctx context.Context, ranks []int) error {
	var first error
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	for _, rank := range ranks {
		if w.isLazy(rank) {
			_, err := w.askRelease(ctx, rank)
			keep(err)
		}
	}
	for _, rank := range ranks {
		if !w.isLazy(rank) {
			continue
		}
		keep(w.released(ctx, "unlock_all", rank, w.targets[rank].access))
		if ctx.Err() == nil {
			w.poller.Lock()
			w.targets[rank].lazy = false
			w.poller.Unlock()
		}
	}
	return first
}

func (w *Win) isLazy(rank int) bool {
	w.poller.Lock()
	defer w.poller.Unlock()
	return w.targets[rank].lazy
}

// Flush blocks until every operation that this rank has issued to target on the
// window has completed at the origin and at the target (MPI_Win_flush, section
// 11.5.4), and returns the first of their errors. It needs a passive target
// epoch. Classes: ErrRank, ErrRMASync, ErrWin, and those of the operations.
func (w *Win) Flush(ctx context.Context, target int) error {
	return w.flush(ctx, "flush", target)
}

func (w *Win) flush(ctx context.Context, name string, rank int) error {
	e, now := w.poller.Lock()
	a, err := w.flushable(name, rank)
	if err == nil && a != nil {
		e.Flush(now, a)
	}
	w.poller.Unlock()
	if err != nil || a == nil {
		return err
	}
	return w.await(ctx, name, rank, (*engine.FlushWait)(a))
}

// flushable returns the access to flush, nil if there is nothing to do.
func (w *Win) flushable(name string, rank int) (*engine.Access, error) {
	if w.freed {
		return nil, w.gone(name)
	}
	if rank == ProcNull {
		return nil, nil
	}
	if err := w.epoch.Flush(rank); err != nil {
		return nil, named(name, rank, err)
	}
	return w.targets[rank].access, nil
}

// await waits for something at a target and returns the first error there.
func (w *Win) await(ctx context.Context, name string, rank int, cond interface{ Met() bool }) error {
	if err := w.poller.Wait(ctx, cond); err != nil {
		return err
	}
	w.poller.Lock()
	defer w.poller.Unlock()
	return failure(name, rank, w.targets[rank].access)
}

// FlushAll is Flush for all targets (MPI_Win_flush_all, section 11.5.4).
func (w *Win) FlushAll(ctx context.Context) error { return w.flushAll(ctx, "flush_all") }

func (w *Win) flushAll(ctx context.Context, name string) error {
	e, now := w.poller.Lock()
	err := w.epoch.FlushAll()
	if w.freed {
		err = w.gone(name)
	}
	ranks := w.touched
	if err == nil {
		for _, rank := range ranks {
			e.Flush(now, w.targets[rank].access)
		}
	}
	w.poller.Unlock()
	if err != nil {
		return named(name, NoRank, err)
	}
	var first error
	for _, rank := range ranks {
		if err := w.await(ctx, name, rank, (*engine.FlushWait)(w.targets[rank].access)); first == nil {
			first = err
		}
	}
	return first
}

// FlushLocal blocks until every operation issued to target has completed at the
// origin: its buffers may be used again (MPI_Win_flush_local, section 11.5.4).
// Errors are as for Flush, as far as they are known by then.
func (w *Win) FlushLocal(ctx context.Context, target int) error {
	const name = "flush_local"
	e, now := w.poller.Lock()
	a, err := w.flushable(name, target)
	if err == nil && a != nil {
		e.Flush(now, a)
	}
	w.poller.Unlock()
	if err != nil || a == nil {
		return err
	}
	return w.await(ctx, name, target, (*engine.LocalWait)(a))
}

// FlushLocalAll is FlushLocal for all targets (MPI_Win_flush_local_all, section
// 11.5.4).
func (w *Win) FlushLocalAll(ctx context.Context) error {
	const name = "flush_local_all"
	e, now := w.poller.Lock()
	err := w.epoch.FlushAll()
	if w.freed {
		err = w.gone(name)
	}
	ranks := w.touched
	if err == nil {
		for _, rank := range ranks {
			e.Flush(now, w.targets[rank].access)
		}
	}
	w.poller.Unlock()
	if err != nil {
		return named(name, NoRank, err)
	}
	var first error
	for _, rank := range ranks {
		if err := w.await(ctx, name, rank, (*engine.LocalWait)(w.targets[rank].access)); first == nil {
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
	defer w.poller.Unlock()
	if w.freed {
		return w.gone("sync")
	}
	return nil
}
