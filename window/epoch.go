package window

import "github.com/xdprma/xdprma/internal/mpierr"

// Epoch is what a process knows about its own access epochs on one window: which
// targets it may access now, and which synchronisation calls are legal (section
// 11.5). It records what the process called, not what the targets answered.
//
// The window is in one mode at a time: no epoch, locks on single targets, or a
// lock on all. Fence and post-start epochs join as further modes; Access asks
// the per-target state and the mode only.
//
// The errors are *mpierr.Error and carry the target's rank.
type Epoch struct {
	groupSize int
	noLocks   bool
	all       access   // what a lock on all gives for every target
	targets   []access // one byte a target; nil until the first lock
	locked    int      // targets that are locked singly
}

// access says how one target may be accessed.
type access uint8

const (
	accessNone      access = 0
	accessShared    access = 1
	accessExclusive access = 2
	accessKind      access = 3 // mask of the two above
	accessNoCheck   access = 4 // the lock was not asked for at the target
)

// NewEpoch returns the state of a process that has no epoch open on a window of
// groupSize ranks. With noLocks, the info key of that name, lock calls are errors.
func NewEpoch(groupSize int, noLocks bool) *Epoch {
	return &Epoch{groupSize: groupSize, noLocks: noLocks}
}

// Access returns nil if an operation on target may be issued now. Errors: Rank;
// RMASync if no epoch gives access to target.
func (e *Epoch) Access(target int) error {
	if uint(target) < uint(len(e.targets)) && e.targets[target] != accessNone {
		return nil
	}
	if e.all != accessNone && uint(target) < uint(e.groupSize) {
		return nil
	}
	if err := e.checkRank("access", target); err != nil {
		return err
	}
	return syncError("access", target, "no epoch gives access to this target: call Lock or LockAll first")
}

// Lock opens an epoch on target. Errors: Locktype; Rank; Assert if assert is
// neither 0 nor ModeNoCheck; RMASync if target is locked, if all are, or if the
// window was created with no_locks.
func (e *Epoch) Lock(target int, kind LockType, assert Assert) error {
	if !kind.Valid() {
		return mpierr.New("lock", mpierr.Locktype, target, "%d is not a lock type", kind)
	}
	if err := e.checkRank("lock", target); err != nil {
		return err
	}
	if err := e.checkLock("lock", target, assert); err != nil {
		return err
	}
	if e.targets == nil {
		e.targets = make([]access, e.groupSize)
	}
	if e.targets[target] != accessNone {
		return syncError("lock", target, "this process has locked the target already")
	}
	e.targets[target] = newAccess(kind, assert)
	e.locked++
	return nil
}

// Unlock closes the epoch that Lock opened. Errors: Rank; RMASync if target is
// not locked singly.
func (e *Epoch) Unlock(target int) error {
	if err := e.CheckUnlock(target); err != nil {
		return err
	}
	e.targets[target] = accessNone
	e.locked--
	return nil
}

// CheckUnlock returns the error that Unlock would, and changes nothing.
func (e *Epoch) CheckUnlock(target int) error {
	if err := e.checkRank("unlock", target); err != nil {
		return err
	}
	if e.targets == nil || e.targets[target] == accessNone {
		if e.all != accessNone {
			return syncError("unlock", target, "all targets are locked together: call UnlockAll")
		}
		return syncError("unlock", target, "the target is not locked")
	}
	return nil
}

// LockAll opens a shared epoch on all targets. Errors: Assert if assert is
// neither 0 nor ModeNoCheck; RMASync if any target is locked, or if the window
// was created with no_locks.
func (e *Epoch) LockAll(assert Assert) error {
	if err := e.checkLock("lock_all", mpierr.NoRank, assert); err != nil {
		return err
	}
	if e.locked > 0 {
		return syncError("lock_all", mpierr.NoRank, "%d targets are locked singly: unlock them first", e.locked)
	}
	e.all = newAccess(LockShared, assert)
	return nil
}

// UnlockAll closes the epoch that LockAll opened; RMASync if there is none.
func (e *Epoch) UnlockAll() error {
	if e.all == accessNone {
		return syncError("unlock_all", mpierr.NoRank, "LockAll was not called")
	}
	e.all = accessNone
	return nil
}

// Flush returns nil if target may be flushed now. Errors: Rank; RMASync if no
// lock gives access to target.
func (e *Epoch) Flush(target int) error {
	if err := e.checkRank("flush", target); err != nil {
		return err
	}
	if _, _, ok := e.Locked(target); !ok {
		return syncError("flush", target, "flush needs a passive target epoch: call Lock or LockAll first")
	}
	return nil
}

// FlushAll returns nil if all targets may be flushed now; RMASync if none is locked.
func (e *Epoch) FlushAll() error {
	if e.all == accessNone && e.locked == 0 {
		return syncError("flush_all", mpierr.NoRank, "flush needs a passive target epoch: call Lock or LockAll first")
	}
	return nil
}

// Free returns nil if the window may be freed; RMASync if an epoch is open.
func (e *Epoch) Free() error {
	switch {
	case e.all != accessNone:
		return syncError("window free", mpierr.NoRank, "all targets are locked: call UnlockAll first")
	case e.locked > 0:
		return syncError("window free", mpierr.NoRank, "%d targets are locked: unlock them first", e.locked)
	}
	return nil
}

// Locked returns how target is locked, singly or with all others, and with which
// assertion; ok is false if it is not, or if target is out of range.
func (e *Epoch) Locked(target int) (kind LockType, assert Assert, ok bool) {
	a := e.all
	if uint(target) < uint(len(e.targets)) && e.targets[target] != accessNone {
		a = e.targets[target]
	}
	if a == accessNone || uint(target) >= uint(e.groupSize) {
		return 0, 0, false
	}
	if a&accessNoCheck != 0 {
		assert = ModeNoCheck
	}
	if a&accessKind == accessExclusive {
		return LockExclusive, assert, true
	}
	return LockShared, assert, true
}

// LockedAll reports whether LockAll's epoch is open, and with which assertion.
func (e *Epoch) LockedAll() (assert Assert, ok bool) {
	if e.all&accessNoCheck != 0 {
		assert = ModeNoCheck
	}
	return assert, e.all != accessNone
}

// LockedCount returns the number of targets that are locked singly.
func (e *Epoch) LockedCount() int { return e.locked }

func (e *Epoch) checkRank(op string, target int) error {
	if uint(target) >= uint(e.groupSize) {
		return mpierr.New(op, mpierr.Rank, target, "rank %d is not among the window's ranks, 0 to %d", target, e.groupSize-1)
	}
	return nil
}

// checkLock refuses what is wrong for every new lock.
func (e *Epoch) checkLock(op string, target int, assert Assert) error {
	switch {
	case assert&^ModeNoCheck != 0:
		return mpierr.New(op, mpierr.Assert, target, "assertion %d: a lock takes none but ModeNoCheck", assert)
	case e.noLocks:
		return syncError(op, target, "the window was created with the info key no_locks")
	case e.all != accessNone:
		return syncError(op, target, "all targets are locked already: call UnlockAll first")
	}
	return nil
}

func newAccess(kind LockType, assert Assert) access {
	a := accessShared
	if kind == LockExclusive {
		a = accessExclusive
	}
	if assert&ModeNoCheck != 0 {
		a |= accessNoCheck
	}
	return a
}

func syncError(op string, target int, format string, args ...any) error {
	return mpierr.New(op, mpierr.RMASync, target, format, args...)
}
