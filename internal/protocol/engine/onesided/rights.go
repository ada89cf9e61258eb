package onesided

import (
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// windowFor returns the window that a request of s means, or nil and why it is refused: no
// rank outside the window's group may do anything to it, nor a later life of a member, and a
// member what its owner gives it the right to.
func (x *base) windowFor(s *Peer, r *wire.Record) (*windows.Window, mpierr.Class) {
	w := x.cfg.Windows.Lookup(r.Window)
	if w == nil {
		return nil, mpierr.Win
	}
	switch has, isMember := w.Rights(s.Rank(), s.Life()); {
	case !isMember:
		return nil, mpierr.Group
	case has != window.MayAll && Needs(r)&^has != 0:
		return nil, mpierr.Access
	}
	return w, mpierr.Success
}

// Needs returns the rights that the origin of a request needs. It needs none to end what it was
// let begin, nor to synchronise otherwise than by a lock.
func Needs(r *wire.Record) window.Rights {
	row := r.Code.Row()
	if !row.Combines || row.Rights != window.MayNothing && datatype.Op(r.Op) == datatype.NoOp {
		return row.Rights
	}
	return row.Rights | changes(r)
}

// changes returns the right that the operator of an accumulate needs.
func changes(r *wire.Record) window.Rights {
	if datatype.Op(r.Op) == datatype.Replace {
		return window.MayWrite
	}
	return window.MayAccumulate
}

// countRefusal counts a request that was refused because of who asked for it.
func (x *base) countRefusal(class mpierr.Class) {
	switch class {
	case mpierr.Group:
		x.totals.Outsiders++
	case mpierr.Access:
		x.totals.Denied++
	}
}
