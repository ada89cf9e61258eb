package rma

import (
	"context"

	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
)

// Lock starts an access epoch on one target (MPI_Win_lock, section 11.5.3), kind
// being LockExclusive or LockShared. It waits for the lock where this process can
// load and store the target's memory, its own and that of SharedQuery. Elsewhere it
// does not: what is issued next travels with the request and takes effect once the
// lock is held. Locks are granted in the order in which requests arrive. With the
// assertion ModeNoCheck no lock is asked for. Several targets may be locked at once,
// also of several windows. Then Lock waits until the locks that were asked for before are
// granted. So ranks that take their locks in one order do not wait for each other. A lock
// that another goroutine waits for, in a flush, Unlock, Lock, a call that waits for its value such as Fetch, or with
// the request of an operation under it, holds nobody up. One that a goroutine has asked for
// and does not wait for holds up the next Lock of every goroutine of the rank: flush its
// target before waiting for something else, such as a message.
// Lock blocks while there is no room to send, too, but not for a target that has not joined
// the job yet, or that this rank has not met. If it fails, or ctx ends first, no
// epoch is open, and the lock is given back as soon as it is held. Classes: ErrLocktype,
// ErrRank, ErrAssert, ErrRMASync, ErrWin, ErrProcFailed.
func (w *Win) Lock(ctx context.Context, kind LockType, target int, assert ...Assert) error {
	return w.report(w.run(ctx, w.epochs.Lock(kind, target, union(assert))))
}

// Unlock ends the epoch that Lock started (MPI_Win_unlock, section 11.5.3). It
// blocks until everything issued in it has completed at the origin and at the
// target, and the lock is released. It returns the first error of an operation
// of the epoch. Classes: ErrRank, ErrRMASync, ErrWin, and those of the operations.
// If ctx ends first, the lock may be released already: call Unlock again to wait
// for the rest; nothing else can be issued to the target until then.
func (w *Win) Unlock(ctx context.Context, target int) error {
	return w.report(w.run(ctx, w.epochs.Unlock(target)))
}

// LockAll starts an access epoch on all targets with shared locks
// (MPI_Win_lock_all, section 11.5.3). It is not collective. It waits for the locks of
// those targets whose memory this process can load and store, as Lock does; the lock of
// another one is asked for with the first operation there. If it fails, or ctx ends
// first, no epoch is open. It does not wait behind requests that have not waited
// for as long as this epoch is open, or two that lock all could wait for each other. A
// rank that holds an exclusive lock while it waits for the next one has no such way out:
// beside it an epoch of LockAll with several targets may wait for ever. Classes:
// ErrAssert, ErrRMASync, ErrWin.
func (w *Win) LockAll(ctx context.Context, assert ...Assert) error {
	return w.report(w.run(ctx, w.epochs.LockAll(union(assert))))
}

// UnlockAll ends the epoch that LockAll started (MPI_Win_unlock_all, section
// 11.5.3). It blocks as Unlock does, for all targets that were accessed, and
// returns the first error. If ctx ends first, call it again, as for Unlock.
func (w *Win) UnlockAll(ctx context.Context) error {
	return w.report(w.run(ctx, w.epochs.UnlockAll()))
}

// Flush blocks until every operation that this rank has issued to target on the
// window has completed at the origin and at the target (MPI_Win_flush, section
// 11.5.4), and returns the first of their errors. It needs a passive target
// epoch. Classes: ErrRank, ErrRMASync, ErrWin, and those of the operations. If
// ctx ends first, the operations stay outstanding and the epoch open.
func (w *Win) Flush(ctx context.Context, target int) error {
	return w.report(w.run(ctx, w.epochs.Flush("flush", target, epochs.AtTarget)))
}

// FlushLocal blocks until every operation issued to target has completed at the
// origin: its buffers may be used again (MPI_Win_flush_local, section 11.5.4).
// Errors are as for Flush, as far as they are known by then.
func (w *Win) FlushLocal(ctx context.Context, target int) error {
	return w.report(w.run(ctx, w.epochs.Flush("flush_local", target, epochs.AtOrigin)))
}

// FlushAll is Flush for all targets (MPI_Win_flush_all, section 11.5.4).
func (w *Win) FlushAll(ctx context.Context) error {
	return w.report(w.run(ctx, w.epochs.FlushAll("flush_all", epochs.AtTarget)))
}

// FlushLocalAll is FlushLocal for all targets (MPI_Win_flush_local_all, section
// 11.5.4).
func (w *Win) FlushLocalAll(ctx context.Context) error {
	return w.report(w.run(ctx, w.epochs.FlushAll("flush_local_all", epochs.AtOrigin)))
}

// FlushRanks is Flush for several targets at once: all are asked before any is waited for. The standard
// has no such call. A target may be named twice, and ProcNull stands for nobody. If one of them
// is in no passive target epoch, none is flushed. With ProcNull alone, or nothing, the call does nothing in a
// passive target epoch. It returns the first error in the order of targets, which names its rank. Classes: ErrRank,
// ErrRMASync, ErrWin, and those of the operations. If ctx ends first, the operations stay outstanding
// and the epochs open.
func (w *Win) FlushRanks(ctx context.Context, targets ...int) error {
	return w.report(w.run(ctx, w.epochs.FlushRanks("flush_ranks", targets, epochs.AtTarget)))
}

// FlushLocalRanks is FlushLocal for several targets at once, as FlushRanks is Flush.
func (w *Win) FlushLocalRanks(ctx context.Context, targets ...int) error {
	return w.report(w.run(ctx, w.epochs.FlushRanks("flush_local_ranks", targets, epochs.AtOrigin)))
}

// Sync orders this process's own loads and stores of the window's memory with
// the accesses of others (MPI_Win_sync, section 11.5.4). It completes nothing and
// does not block. For the race detector it is a point of synchronisation with
// everything that has been applied to the window.
func (w *Win) Sync() (err error) {
	defer w.handle(&err)
	w.poller.Lock()
	defer w.poller.UnlockQuiet()
	return w.usable("sync")
}
