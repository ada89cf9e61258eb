package rma

import (
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/window"
)

// Conflict is two accesses that touched the same bytes of a window with nothing to
// order them, found in checking mode (section 11.7). Conflict.Err is of class
// ErrRMAConflict; no call returns it.
type Conflict = window.Conflict

// Conflicts returns the conflicting accesses to this rank's memory that have been
// found, at most 256, and how many there are in all. A conflict is one pair of
// accesses; bytes that touch are one conflict. Beyond 256 each piece of bytes counts.
// Without checking mode there are none. It is local.
func (w *Win) Conflicts() (list []Conflict, total int) {
	w.poller.Lock()
	defer w.poller.UnlockQuiet()
	return w.own.Checker().Conflicts()
}

// checker returns what looks for conflicts in the window to be, nil without
// checking mode.
func (w *Win) checker(id uint32) *windows.Checker {
	if !w.hints.Check {
		return nil
	}
	c := windows.NewChecker(id, w.job.Rank())
	c.SameOp = w.hints.SameOp
	return c
}
