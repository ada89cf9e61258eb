package windows

import (
	"fmt"
	"slices"

	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// Epoch is what a process knows about its own access epochs on one window, and
// about the exposure of its own memory: which targets it may access now, and which
// synchronisation calls are legal (section 11.5). It records what the process
// called, not what others answered.
//
// Access epochs are in one mode at a time: none, fence, start, locks on single
// targets, or a lock on all. A fence opens an epoch that counts only once it was
// used: other modes may follow it if it was not. The exposure of post goes beside
// any of them but fence.
//
// The errors are *mpierr.Error and carry the target's rank.
type Epoch struct {
	self         int // this process's rank
	groupSize    int
	noLocks      bool
	all          accessState   // what fence or a lock on all gives for every target
	targets      []accessState // one byte a target; nil until the first lock or start
	lockedSingly int           // targets that are locked singly
	started      bool          // by Start
	fenceUsed    bool          // an operation was issued since the last fence
	posted       bool          // by Post
}

// accessState says how one target may be accessed.
type accessState uint8

const (
	accessNone      accessState = 0
	accessShared    accessState = 1
	accessExclusive accessState = 2
	accessKind      accessState = 3 // mask of the two above
	accessNoCheck   accessState = 4 // the lock was not asked for at the target
	accessFence     accessState = 8
	accessStart     accessState = 16
)

// NewEpoch returns the state of process self that has no epoch open on a window
// of groupSize ranks. With noLocks, the info key of that name, lock calls are errors.
func NewEpoch(self, groupSize int, noLocks bool) *Epoch {
	return &Epoch{self: self, groupSize: groupSize, noLocks: noLocks}
}

// Access returns nil if an operation on target may be issued now; Used says that one
// is. Errors: Rank; RMASync if no epoch gives access to target.
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
	if e.started {
		return syncError("access", target, "the target is not in the group of Start")
	}
	return syncError("access", target, "no epoch gives access to this target: call Fence, Start, Lock or LockAll first")
}

// Used records that an operation is issued: the epoch of a fence counts from then on.
func (e *Epoch) Used() { e.fenceUsed = e.fenceUsed || e.all == accessFence }

// AccessNone returns nil if an operation on the null process may be issued now, with a
// request if passive is set; RMASync if no epoch is open that allows it.
func (e *Epoch) AccessNone(op string, passive bool) error {
	locked := e.all&accessKind != 0 || e.lockedSingly > 0
	switch {
	case passive && !locked:
		return syncError(op, mpierr.NoRank, "request-based calls need the epoch of a lock: call Lock or LockAll first")
	case e.all == accessNone && !locked && !e.started:
		return syncError(op, mpierr.NoRank, "no access epoch is open: call Fence, Start, Lock or LockAll first")
	}
	return nil
}

// Lock opens an epoch on target. Errors: Locktype; Rank; Assert if assert is
// neither 0 nor ModeNoCheck; RMASync if target is locked, if another kind of epoch
// is open, if target is this process and has posted, or if the window was created
// with no_locks.
func (e *Epoch) Lock(target int, kind window.LockType, assert window.Assert) error {
	if !kind.Valid() {
		return mpierr.New("lock", mpierr.Locktype, target, "%d is not a lock type", kind)
	}
	if err := e.checkRank("lock", target); err != nil {
		return err
	}
	if err := e.checkLock("lock", target, assert); err != nil {
		return err
	}
	if e.posted && target == e.self {
		return syncError("lock", target, "this process's window is exposed by Post: call Wait first")
	}
	e.endFence()
	e.makeTargets()
	if e.targets[target] != accessNone {
		return syncError("lock", target, "this process has locked the target already")
	}
	e.targets[target] = newAccess(kind, assert)
	e.lockedSingly++
	return nil
}

// Unlock closes the epoch that Lock opened. Errors: Rank; RMASync if target is
// not locked singly.
func (e *Epoch) Unlock(target int) error {
	if err := e.CheckUnlock(target); err != nil {
		return err
	}
	e.targets[target] = accessNone
	e.lockedSingly--
	return nil
}

// CheckUnlock returns the error that Unlock would, and changes nothing.
func (e *Epoch) CheckUnlock(target int) error {
	if err := e.checkRank("unlock", target); err != nil {
		return err
	}
	if e.targets == nil || e.targets[target]&accessKind == 0 {
		if e.all&accessKind != 0 {
			return syncError("unlock", target, "all targets are locked together: call UnlockAll")
		}
		return syncError("unlock", target, "the target is not locked")
	}
	return nil
}

// LockAll opens a shared epoch on all targets. Errors: Assert if assert is
// neither 0 nor ModeNoCheck; RMASync if any target is locked, if another kind of
// epoch is open, if this process has posted, or if the window was created with
// no_locks.
func (e *Epoch) LockAll(assert window.Assert) error {
	if err := e.checkLock("lock_all", mpierr.NoRank, assert); err != nil {
		return err
	}
	if e.lockedSingly > 0 {
		return syncError("lock_all", mpierr.NoRank, "%s: unlock first", e.lockedTargets())
	}
	if e.posted {
		return syncError("lock_all", mpierr.NoRank, "this process's window is exposed by Post: call Wait first")
	}
	e.endFence()
	e.all = newAccess(window.LockShared, assert)
	return nil
}

// UnlockAll closes the epoch that LockAll opened; RMASync if there is none.
func (e *Epoch) UnlockAll() error {
	if e.all&accessKind == 0 {
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
	if e.all&accessKind == 0 && e.lockedSingly == 0 {
		return syncError("flush_all", mpierr.NoRank, "flush needs a passive target epoch: call Lock or LockAll first")
	}
	return nil
}

// Fence ends the epochs of the last fence and, unless assert has ModeNoSucceed,
// begins new ones. Errors: Assert for assertions that a fence does not take;
// RMASync if a target is locked or started, or this process has posted.
func (e *Epoch) Fence(assert window.Assert) error {
	const known = window.ModeNoStore | window.ModeNoPut | window.ModeNoPrecede | window.ModeNoSucceed
	switch {
	case assert&^known != 0:
		return mpierr.New("fence", mpierr.Assert, mpierr.NoRank, "assertion %d: a fence takes ModeNoStore, ModeNoPut, ModeNoPrecede and ModeNoSucceed", assert)
	case e.all&accessKind != 0:
		return syncError("fence", mpierr.NoRank, "all targets are locked: call UnlockAll first")
	case e.lockedSingly > 0:
		return syncError("fence", mpierr.NoRank, "%s: unlock first", e.lockedTargets())
	case e.started:
		return syncError("fence", mpierr.NoRank, "an epoch that Start began is open: call Complete first")
	case e.posted:
		return syncError("fence", mpierr.NoRank, "this process's window is exposed by Post: call Wait first")
	}
	e.all, e.fenceUsed = accessFence, false
	if assert&window.ModeNoSucceed != 0 {
		e.all = accessNone
	}
	return nil
}

// Fenced reports whether a fence's epoch is open, and whether it was used.
func (e *Epoch) Fenced() (open, used bool) { return e.all == accessFence, e.fenceUsed }

// Start opens an access epoch on the targets of a group. Errors: Assert if assert
// is neither 0 nor ModeNoCheck; Rank for one that is not among the window's or
// occurs twice; RMASync if another access epoch is open.
func (e *Epoch) Start(targets []int, assert window.Assert) error {
	if assert&^window.ModeNoCheck != 0 {
		return mpierr.New("start", mpierr.Assert, mpierr.NoRank, "assertion %d: a start takes none but ModeNoCheck", assert)
	}
	if err := e.checkGroup("start", targets); err != nil {
		return err
	}
	switch {
	case e.started:
		return syncError("start", mpierr.NoRank, "an epoch that Start began is open: call Complete first")
	case e.all&accessKind != 0 || e.lockedSingly > 0:
		return syncError("start", mpierr.NoRank, "targets are locked: unlock them first")
	case e.fenceUsed:
		return syncError("start", mpierr.NoRank, "the epoch of a fence was used: end it by a fence with ModeNoSucceed first")
	}
	e.endFence()
	e.makeTargets()
	for _, t := range targets {
		e.targets[t] = accessStart
	}
	e.started = true
	return nil
}

// Complete closes the epoch that Start opened; RMASync if there is none.
func (e *Epoch) Complete() error {
	if !e.started {
		return syncError("complete", mpierr.NoRank, "Start was not called")
	}
	clear(e.targets)
	e.started = false
	return nil
}

// Post exposes this process's window to the origins of a group. Errors: Assert
// for assertions other than ModeNoCheck, ModeNoStore and ModeNoPut; Rank as for
// Start; RMASync if the window is exposed already, by Post or by a fence, or if
// this process holds the lock of its own window.
func (e *Epoch) Post(origins []int, assert window.Assert) error {
	if assert&^(window.ModeNoCheck|window.ModeNoStore|window.ModeNoPut) != 0 {
		return mpierr.New("post", mpierr.Assert, mpierr.NoRank, "assertion %d: a post takes ModeNoCheck, ModeNoStore and ModeNoPut", assert)
	}
	if err := e.checkGroup("post", origins); err != nil {
		return err
	}
	_, _, locked := e.Locked(e.self)
	switch {
	case e.posted:
		return syncError("post", mpierr.NoRank, "this process's window is exposed already: call Wait first")
	case e.fenceUsed:
		return syncError("post", mpierr.NoRank, "the epoch of a fence was used: end it by a fence with ModeNoSucceed first")
	case locked:
		return syncError("post", mpierr.NoRank, "this process has locked its own window: unlock it first")
	}
	e.endFence()
	e.posted = true
	return nil
}

// CheckWait returns nil if Wait or Test may be called, RMASync if there was no Post.
func (e *Epoch) CheckWait(op string) error {
	if !e.posted {
		return syncError(op, mpierr.NoRank, "Post was not called")
	}
	return nil
}

// Waited records that the exposure which Post began is over.
func (e *Epoch) Waited() { e.posted = false }

// Free returns nil if the window may be freed; RMASync if an epoch is open. An epoch
// that a fence began and nobody used does not count as open.
func (e *Epoch) Free() error {
	switch {
	case e.all&accessKind != 0:
		return syncError("window free", mpierr.NoRank, "all targets are locked: call UnlockAll first")
	case e.lockedSingly > 0:
		return syncError("window free", mpierr.NoRank, "%s: unlock first", e.lockedTargets())
	case e.started:
		return syncError("window free", mpierr.NoRank, "an epoch that Start began is open: call Complete first")
	case e.posted:
		return syncError("window free", mpierr.NoRank, "the window is exposed by Post: call Wait first")
	case e.fenceUsed:
		return syncError("window free", mpierr.NoRank, "the epoch of a fence was used: call Fence first")
	}
	return nil
}

// lockedTargets says how many targets are locked singly.
func (e *Epoch) lockedTargets() string {
	if e.lockedSingly == 1 {
		return "1 target is locked"
	}
	return fmt.Sprintf("%d targets are locked", e.lockedSingly)
}

// endFence ends the epoch of a fence that was not used.
func (e *Epoch) endFence() {
	if e.all == accessFence {
		e.all = accessNone
	}
}

func (e *Epoch) makeTargets() {
	if e.targets == nil {
		e.targets = make([]accessState, e.groupSize)
	}
}

// checkGroup refuses ranks that are not among the window's, or not distinct.
func (e *Epoch) checkGroup(op string, ranks []int) error {
	for i, r := range ranks {
		if err := e.checkRank(op, r); err != nil {
			return err
		}
		if slices.Contains(ranks[:i], r) {
			return mpierr.New(op, mpierr.Rank, r, "the rank is in the group twice")
		}
	}
	return nil
}

// Locked returns how target is locked, singly or with all others, and with which
// assertion; ok is false if it is not, or if target is out of range.
func (e *Epoch) Locked(target int) (kind window.LockType, assert window.Assert, ok bool) {
	a := e.all
	if uint(target) < uint(len(e.targets)) && e.targets[target] != accessNone {
		a = e.targets[target]
	}
	if a&accessKind == 0 || uint(target) >= uint(e.groupSize) {
		return 0, 0, false
	}
	if a&accessNoCheck != 0 {
		assert = window.ModeNoCheck
	}
	if a&accessKind == accessExclusive {
		return window.LockExclusive, assert, true
	}
	return window.LockShared, assert, true
}

// LockedAll reports whether LockAll's epoch is open, and with which assertion.
func (e *Epoch) LockedAll() (assert window.Assert, ok bool) {
	if e.all&accessNoCheck != 0 {
		assert = window.ModeNoCheck
	}
	return assert, e.all&accessKind != 0
}

func (e *Epoch) checkRank(op string, target int) error {
	if uint(target) >= uint(e.groupSize) {
		return mpierr.New(op, mpierr.Rank, target, "rank %d is not among the window's ranks, 0 to %d", target, e.groupSize-1)
	}
	return nil
}

// checkLock refuses what is wrong for every new lock.
func (e *Epoch) checkLock(op string, target int, assert window.Assert) error {
	switch {
	case assert&^window.ModeNoCheck != 0:
		return mpierr.New(op, mpierr.Assert, target, "assertion %d: a lock takes none but ModeNoCheck", assert)
	case e.noLocks:
		return syncError(op, target, "the window was created with the info key no_locks")
	case e.all&accessKind != 0:
		return syncError(op, target, "all targets are locked already: call UnlockAll first")
	case e.started:
		return syncError(op, target, "an epoch that Start began is open: call Complete first")
	case e.fenceUsed:
		return syncError(op, target, "the epoch of a fence was used: end it by a fence with ModeNoSucceed first")
	}
	return nil
}

func newAccess(kind window.LockType, assert window.Assert) accessState {
	a := accessShared
	if kind == window.LockExclusive {
		a = accessExclusive
	}
	if assert&window.ModeNoCheck != 0 {
		a |= accessNoCheck
	}
	return a
}

func syncError(op string, target int, format string, args ...any) error {
	return mpierr.New(op, mpierr.RMASync, target, format, args...)
}
