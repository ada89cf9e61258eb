package onesided

import (
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/internal/words"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

const (
	localChunk = 4096     // bytes that go through memory in between at a time
	localTurn  = 64 << 10 // bytes of a call on this rank's own window that hold the engine up
)

// Direct lets calls act at once on a window in this process's memory, this rank's
// own or one that it maps. It has no part in the operations: several may be at work
// at the same time, outside the engine's lock.
type Direct struct {
	typed  Typed
	chunks [2][localChunk]byte
}

// Act lets c act on w, and returns why w refused it. If w refuses a part, the effect of
// the parts before it stays, as it does where the parts travel. c.Typed is not looked
// at.
func Act(c *Call, w *windows.Window) mpierr.Class {
	if c.says() {
		return mpierr.Success
	}
	return actOn(c, w, 0, c.size())
}

// actOn is Act for the bytes of the target from one place to another.
func actOn(c *Call, w *windows.Window, from, to int) mpierr.Class {
	operand, result := c.Origin, c.Result
	if len(operand) > 0 && c.Op != datatype.NoOp { // of a call that was kept back it may be empty and not nil
		operand = operand[from:to]
	}
	if result != nil {
		result = result[from:to]
	}
	return c.act(w, c.Disp+uint64(from), operand, result)
}

// act lets c act on w at a displacement, with an operand and room for a result.
func (c *Call) act(w *windows.Window, disp uint64, operand, result []byte) mpierr.Class {
	switch c.Code {
	case wire.CodePut:
		return w.Put(disp, operand)
	case wire.CodeGet:
		return w.Get(disp, result)
	case wire.CodeAccumulate:
		return w.Accumulate(c.Op, c.Basic, disp, operand)
	case wire.CodeGetAccumulate:
		return w.GetAccumulate(c.Op, c.Basic, disp, operand, result)
	case wire.CodeCompareSwap:
		return w.CompareAndSwap(c.Basic, disp, c.Compare, operand, result)
	}
	panic("onesided: a call with an unknown code")
}

// ActTyped is Act for a call with derived datatypes; its arguments are those of
// Operations.Typed.
func (d *Direct) ActTyped(c *Call, w *windows.Window, origin, result *Local, target *datatype.Type, count, size int) mpierr.Class {
	d.typed.set(origin, result, target, count, size)
	class := mpierr.Success
	for at := 0; class == mpierr.Success && at < size; {
		_, n, fault := d.step(&d.typed, c, w, at)
		class = fault
		at += n
	}
	d.typed.forget()
	return class
}

// step lets the next piece of a typed call act, from a place in its packed data, and
// returns its displacement from c.Disp and its length.
func (d *Direct) step(y *Typed, c *Call, w *windows.Window, at int) (off int64, n int, class mpierr.Class) {
	y.way = byPiece
	off, n = y.next(at, min(localChunk, y.size-at))
	disp, operand, result := c.Disp+uint64(off), d.chunks[0][:n], d.chunks[1][:n]
	if c.Code != wire.CodeGet && c.Op != datatype.NoOp {
		y.origin.pack(operand, at)
	}
	if class = c.act(w, disp, operand, result); class == mpierr.Success && c.Code.Fetches() {
		y.result.unpack(result, at)
	}
	return off, n, class
}

// issueLocal lets a call act on this rank's own window: what was kept back, and where
// the window is dynamic or looks for conflicts. A long one takes several turns.
func (x *Origin) issueLocal(c *Call) (bool, error) {
	a := c.Access
	w := a.ownWindow
	x.turn++
	switch {
	case c.Code == wire.CodeComplete:
		return x.tellComplete(a), nil
	case c.Code == wire.CodeNotify:
		x.countOwn(c)
		return true, nil
	case c.Typed != nil:
		return x.issueTypedLocal(c, w)
	}
	size := c.size()
	n := min(size-c.at, localTurn)
	from := c.at
	if n < size && fromTheEnd(c, w) {
		from = size - c.at - n
	}
	if class := actOn(c, w, from, from+n); class != mpierr.Success {
		a.Refused(c, class)
		return true, nil
	}
	if a.checked {
		x.observeLocal(c, c.Disp+uint64(from), n)
	}
	if c.at += n; c.at < size {
		return false, nil
	}
	x.countOwn(c)
	return true, nil
}

// observeLocal is observe for n bytes of a call on this rank's own window.
func (x *Origin) observeLocal(c *Call, disp uint64, n int) {
	a := window.Access{Origin: x.cfg.Rank, Call: c.Code.Row().Call}
	if c.Code.Accumulates() {
		a.Op, a.Basic = c.Op, c.Basic
	}
	remember := !a.Reads() || c.Request == nil
	x.note(c.Access.ownWindow.Checker(), localHolder, a, disp, n, remember, c.Order == OrderAll)
}

// fromTheEnd reports whether a call writes to memory that begins within what it reads. Its
// turns then go from the end to the start.
func fromTheEnd(c *Call, w *windows.Window) bool {
	mem, class := w.Slice(c.Disp, c.size())
	switch {
	case class != mpierr.Success:
		return false // the call is refused
	case c.Code == wire.CodePut:
		return words.BeginsWithin(mem, c.Origin)
	case c.Code == wire.CodeGet:
		return words.BeginsWithin(c.Result, mem)
	}
	return false
}

func (x *Origin) issueTypedLocal(c *Call, w *windows.Window) (bool, error) {
	y := c.Typed
	if x.directScratch == nil {
		x.directScratch = &Direct{}
	}
	for turn := min(c.at+localTurn, y.size); c.at < turn; {
		off, n, class := x.directScratch.step(y, c, w, c.at)
		if class != mpierr.Success {
			c.Access.Refused(c, class)
			x.done(c)
			return true, nil
		}
		if c.Access.checked {
			x.observeLocal(c, c.Disp+uint64(off), n)
		}
		if c.at += n; c.at >= turn && c.at < y.size { // pieces end where blocks do
			return false, nil
		}
	}
	x.countOwn(c)
	x.done(c)
	return true, nil
}
