package epochs

import (
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// MayAccess returns nil if an operation on a target, with a request if requested is set,
// may be issued now.
func (w *Window) MayAccess(op string, target int, requested bool) error {
	if err := w.Usable(op); err != nil {
		return err
	}
	if err := w.epoch.Access(target); err != nil {
		return named(op, target, err)
	}
	if w.targets[target].releasing {
		return mpierr.New(op, mpierr.RMASync, target, "an unlock has begun: call it again until it succeeds")
	}
	if requested {
		if _, _, locked := w.epoch.Locked(target); !locked {
			return mpierr.New(op, mpierr.RMASync, target, "request-based calls need the epoch of a lock: call Lock or LockAll first")
		}
	}
	return nil
}

// MayAccessNone is MayAccess for the null process.
func (w *Window) MayAccessNone(op string, requested bool) error {
	if err := w.Usable(op); err != nil {
		return err
	}
	return w.epoch.AccessNone(op, requested)
}

// Used notes that an operation which MayAccess is nil for is issued to a target.
func (w *Window) Used(target int) {
	w.targets[target].used = true
	w.epoch.Used()
}

// mayIssue returns the access to a target, and opens it the first time. Until the request
// for LockAll's lock has found room, it returns a condition to wait for instead.
func (w *Window) mayIssue(t Turn, target int) (*onesided.Access, Condition) {
	x := &w.targets[target]
	if x.access == nil {
		w.access(t, target)
	}
	if how, all := w.epoch.LockedAll(); all && !x.lazy && how&window.ModeNoCheck == 0 {
		if x.lazy = t.LockPassing(x.access, w.began); !x.lazy {
			return nil, (*onesided.RoomWait)(x.access)
		}
	}
	return x.access, nil
}

// Opened returns the access to a target, nil if nothing was issued there.
func (w *Window) Opened(target int) *onesided.Access { return w.targets[target].access }
