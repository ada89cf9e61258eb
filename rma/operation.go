package rma

import (
	"context"
	"sync"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/engine"
	"github.com/xdprma/xdprma/internal/wire"
	"github.com/xdprma/xdprma/window"
)

// Put copies origin into the target's window (MPI_Put, section 11.3.1). It needs
// an epoch that gives access to target. origin may be changed once Put returns;
// the data is at the target after the next Flush, Unlock or other call that
// completes it. The target has what the origin has unless at says otherwise (see
// Location.As). Classes: ErrRank, ErrRMASync, ErrDisp, ErrRange, ErrWin,
// ErrProcFailed; with derived datatypes also ErrType, ErrCount and ErrArg, which
// Typed and As explain.
func (w *Win) Put(origin Buffer, target int, at Location) error {
	return w.report(w.put(nil, origin, target, at))
}

// put is Put, followed by r unless that is nil; so are the others that begin with
// a small letter.
func (w *Win) put(r *engine.Request, origin Buffer, target int, at Location) error {
	c := engine.Call{Code: wire.CodePut, Origin: origin.Memory(), Request: r}
	if !origin.Plain() || at.typ != nil {
		return w.issueTyped("put", &c, &origin, &Buffer{}, target, &at)
	}
	return w.issue("put", target, at.disp, &c, len(c.Origin), 1, nil)
}

// Get copies from the target's window into result (MPI_Get, section 11.3.2).
// result holds the data after the next Flush, FlushLocal, Unlock or other call
// that completes it, and must be left alone until then. Classes as for Put.
func (w *Win) Get(result Buffer, target int, at Location) error {
	return w.report(w.get(nil, result, target, at))
}

func (w *Win) get(r *engine.Request, result Buffer, target int, at Location) error {
	c := engine.Call{Code: wire.CodeGet, Result: result.Memory(), Request: r}
	if !result.Plain() || at.typ != nil {
		return w.issueTyped("get", &c, &Buffer{}, &result, target, &at)
	}
	return w.issue("get", target, at.disp, &c, len(c.Result), 1, nil)
}

// Accumulate combines origin into the target's window with op, each element
// atomically (MPI_Accumulate, section 11.3.4). NoOp is not allowed. Elements must
// be aligned at the target. Accumulates from one origin to one target take effect
// in the order issued, unless the info key accumulate_ordering says otherwise.
// Derived datatypes must have elements of one predefined datatype. Classes as for
// Put, and ErrOp, ErrType.
func (w *Win) Accumulate(origin Buffer, target int, at Location, op Op) error {
	return w.report(w.accumulate(nil, origin, target, at, op))
}

func (w *Win) accumulate(r *engine.Request, origin Buffer, target int, at Location, op Op) error {
	const name = "accumulate"
	if op == NoOp {
		return newError(name, ErrOp, target, "no_op is for the calls that return a value")
	}
	c := engine.Call{Code: wire.CodeAccumulate, Op: op, Basic: origin.Basic(), Origin: origin.Memory(), Request: r}
	if !origin.Plain() || at.typ != nil {
		return w.issueTyped(name, &c, &origin, &Buffer{}, target, &at)
	}
	if err := checkOp(name, target, op, c.Basic); err != nil {
		return err
	}
	return w.issue(name, target, at.disp, &c, len(c.Origin), c.Basic.Align(), nil)
}

// GetAccumulate is Accumulate and also returns the former values in result
// (MPI_Get_accumulate, section 11.3.4), which has as many elements of the same
// type as origin and overlaps it nowhere. With NoOp, origin is ignored: an atomic
// read. Classes as for Accumulate, and ErrArg where origin and result overlap, which
// is not looked for in derived datatypes.
func (w *Win) GetAccumulate(origin, result Buffer, target int, at Location, op Op) error {
	return w.report(w.getAccumulate(nil, origin, result, target, at, op))
}

func (w *Win) getAccumulate(r *engine.Request, origin, result Buffer, target int, at Location, op Op) error {
	if !origin.Plain() || !result.Plain() || at.typ != nil {
		c := engine.Call{Code: wire.CodeGetAccumulate, Op: op, Request: r}
		return w.issueTyped("get_accumulate", &c, &origin, &result, target, &at)
	}
	return w.fetch(r, "get_accumulate", origin, result, target, at.disp, op)
}

// FetchAndOp is GetAccumulate on a single element (MPI_Fetch_and_op, section
// 11.3.4), of a predefined datatype or a pair. Classes as for GetAccumulate.
func (w *Win) FetchAndOp(origin, result Buffer, target int, at Location, op Op) error {
	return w.report(w.fetchAndOp(nil, origin, result, target, at, op))
}

func (w *Win) fetchAndOp(r *engine.Request, origin, result Buffer, target int, at Location, op Op) error {
	const name = "fetch_and_op"
	if !origin.Plain() || !result.Plain() || at.typ != nil {
		if err := single(name, target, at, origin, result); err != nil {
			return err
		}
	}
	if len(result.Memory()) != result.Basic().Size() {
		return newError(name, ErrCount, target, "the result has %d elements, not one", result.Len())
	}
	return w.fetch(r, name, origin, result, target, at.disp, op)
}

// fetch issues what returns the former values of predefined datatypes.
func (w *Win) fetch(r *engine.Request, name string, origin, result Buffer, target int, disp int64, op Op) error {
	basic := result.Basic()
	if err := checkOp(name, target, op, basic); err != nil {
		return err
	}
	if op != NoOp {
		if origin.Basic() != basic {
			return newError(name, ErrType, target, "the origin is of %v, the result of %v", origin.Basic(), basic)
		}
		if len(origin.Memory()) != len(result.Memory()) {
			return newError(name, ErrCount, target, "%d elements for a result of %d", origin.Len(), result.Len())
		}
		if overlap(origin, result) {
			return notDisjoint(name, target)
		}
	}
	c := engine.Call{Code: wire.CodeGetAccumulate, Op: op, Basic: basic, Origin: origin.Memory(), Result: result.Memory(), Request: r}
	return w.issue(name, target, disp, &c, len(c.Result), basic.Align(), nil)
}

// CompareAndSwap replaces one element at the target by origin if it equals
// compare, atomically, and returns its former value in result
// (MPI_Compare_and_swap, section 11.3.4). All three are single elements of one
// type: an integer, bool or byte; origin and result do not overlap. Classes as for
// GetAccumulate.
func (w *Win) CompareAndSwap(origin, compare, result Buffer, target int, at Location) error {
	return w.report(w.compareAndSwap(nil, origin, compare, result, target, at))
}

func (w *Win) compareAndSwap(r *engine.Request, origin, compare, result Buffer, target int, at Location) error {
	const name = "compare_and_swap"
	if !origin.Plain() || !compare.Plain() || !result.Plain() || at.typ != nil {
		if err := single(name, target, at, origin, compare, result); err != nil {
			return err
		}
	}
	b := result.Basic()
	switch {
	case !b.Comparable():
		return newError(name, ErrType, target, "%v cannot be compared and swapped", b)
	case origin.Basic() != b || compare.Basic() != b:
		return newError(name, ErrType, target, "origin, compare value and result are of different types")
	case len(origin.Memory()) != b.Size() || len(compare.Memory()) != b.Size() || len(result.Memory()) != b.Size():
		return newError(name, ErrCount, target, "origin, compare value and result must be one element each")
	case overlap(origin, result):
		return notDisjoint(name, target)
	}
	c := engine.Call{Code: wire.CodeCompareSwap, Basic: b, Origin: origin.Memory(), Compare: compare.Memory(), Result: result.Memory(), Request: r}
	return w.issue(name, target, at.disp, &c, b.Size(), b.Align(), nil)
}

func notDisjoint(name string, target int) error {
	return newError(name, ErrArg, target, "origin and result overlap: fetch into memory of its own")
}

func checkOp(name string, target int, op Op, b datatype.Basic) error {
	if op.Check(b) == 0 {
		return nil
	}
	return named(name, target, op.Defined(b))
}

// issue checks a call against what the origin knows, and sends it. n is the
// number of bytes from the first to the last that it touches at the target, align
// what the address of the first must be a multiple of. y is set for derived
// datatypes.
func (w *Win) issue(name string, rank int, disp int64, c *engine.Call, n, align int, y *transfer) error {
	e, now := w.poller.Lock()
	if rank == ProcNull {
		defer w.poller.UnlockQuiet()
		if err := w.usable(name); err != nil {
			return err
		}
		return w.epoch.AccessNone(name, c.Request != nil)
	}
	a, err := w.check(name, rank, disp, c, n, align, y)
	if err != nil {
		w.poller.Unlock()
		return err
	}
	if n == 0 {
		w.poller.Unlock()
		return nil
	}
	if a == nil || w.needsLock(rank) {
		w.poller.Unlock()
		if a, err = w.reach(context.Background(), rank); err != nil {
			return named(name, rank, err)
		}
		e, now = w.poller.Lock()
		if err = w.usable(name); err != nil {
			w.poller.Unlock()
			return err
		}
	}
	c.Access = a
	if d := w.targets[rank].direct; d != nil && e.Direct(a) && (c.Basic.Size() <= 8 || a.Local()) {
		w.acting.Add(1)
		w.poller.UnlockQuiet()
		w.act(d, c, y)
		w.acting.Add(-1)
		return nil
	}
	if y != nil {
		c.Typed = e.Typed(&y.origin, &y.result, y.target, y.count, y.size)
	}
	c.Relaxed = w.hints.Ordering == window.OrderNone
	done, err := e.Issue(now, c)
	w.poller.Unlock()
	if !done {
		err = w.send(context.Background(), c)
	}
	if err != nil {
		return named(name, rank, err)
	}
	return nil
}

// directs are used again by calls with derived datatypes.
var directs = sync.Pool{New: func() any { return &engine.Direct{} }}

// act lets a call act at once on memory that this process maps.
func (w *Win) act(target *window.Window, c *engine.Call, y *transfer) {
	var class Class
	if y == nil {
		class = engine.Act(c, target)
	} else {
		d := directs.Get().(*engine.Direct)
		class = d.ActTyped(c, target, &y.origin, &y.result, y.target, y.count, y.size)
		directs.Put(d)
	}
	if class != 0 {
		c.Access.Refused(c, class)
	}
}

// send issues the rest of a call, waiting for room as often as it takes.
func (w *Win) send(ctx context.Context, c *engine.Call) error {
	for {
		if err := w.poller.Wait(ctx, (*engine.RoomWait)(c.Access)); err != nil {
			return err
		}
		e, now := w.poller.Lock()
		done, err := true, w.usable("send") // another goroutine may have freed it meanwhile
		if err == nil {
			done, err = e.Issue(now, c)
		}
		w.poller.Unlock()
		if done || err != nil {
			return err
		}
	}
}

// check refuses what the origin can see to be wrong, and completes c.
func (w *Win) check(name string, rank int, targetDisp int64, c *engine.Call, n, align int, y *transfer) (*engine.Access, error) {
	if err := w.usable(name); err != nil {
		return nil, err
	}
	if err := w.epoch.Access(rank); err != nil {
		return nil, named(name, rank, err)
	}
	t := &w.targets[rank]
	if t.releasing {
		return nil, newError(name, ErrRMASync, rank, "an unlock has begun: call it again until it succeeds")
	}
	disp, class := window.ByteDisp(targetDisp, t.dispUnit)
	if class != 0 && w.own.Flavor() == window.FlavorDynamic {
		disp, class = uint64(targetDisp), 0 // any address may be asked for: the target knows
	}
	if class != 0 {
		return nil, newError(name, class, rank, "displacement %d with a unit of %d bytes", targetDisp, t.dispUnit)
	}
	first := disp
	if y != nil {
		first += uint64(y.lo) // far beyond any window if before its start
	}
	if uint64(n) > t.size || first > t.size-uint64(n) {
		return nil, newError(name, ErrRange, rank, "bytes %d to %d of a window of %d bytes", int64(first), int64(first)+int64(n), t.size)
	}
	if first%uint64(align) != 0 && w.aligned() {
		return nil, newError(name, ErrDisp, rank, "byte displacement %d is not a multiple of %d, the element's alignment", first, align)
	}
	if c.Request != nil {
		if err := w.passive(name, rank); err != nil {
			return nil, err
		}
	}
	c.Disp = disp
	t.used = true
	w.epoch.Used()
	return t.access, nil
}

// aligned reports whether windows are known to start at aligned addresses.
func (w *Win) aligned() bool {
	switch w.own.Flavor() {
	case window.FlavorCreate:
		return false
	case window.FlavorShared:
		return !w.host.dense
	}
	return true
}

// needsLock reports whether LockAll's lock on a target is still to be asked for.
func (w *Win) needsLock(rank int) bool {
	if w.targets[rank].lazy {
		return false
	}
	assert, all := w.epoch.LockedAll()
	return all && assert&ModeNoCheck == 0
}

// reach makes sure that there is an access to a target, and asks for LockAll's
// lock where that is due.
func (w *Win) reach(ctx context.Context, rank int) (*engine.Access, error) {
	a, err := w.access(ctx, rank)
	if err != nil {
		return nil, err
	}
	for {
		e, now := w.poller.Lock()
		if err := w.usable("lock"); err != nil {
			w.poller.Unlock()
			return nil, err
		}
		if !w.needsLock(rank) {
			w.poller.Unlock()
			return a, nil
		}
		if e.LockPassing(now, a, w.began) {
			w.targets[rank].lazy = true
			w.poller.Unlock()
			return a, nil
		}
		w.poller.Unlock()
		if err := w.poller.Wait(ctx, (*engine.RoomWait)(a)); err != nil {
			return nil, err
		}
	}
}

// access returns the engine's access to a target, connecting to it the first time.
func (w *Win) access(ctx context.Context, rank int) (*engine.Access, error) {
	e, _ := w.poller.Lock()
	a := w.targets[rank].access
	w.poller.Unlock()
	if a != nil {
		return a, nil
	}
	var s *engine.Session
	if rank != w.comm.Rank() {
		var err error
		if s, err = w.comm.Job().Session(ctx, w.comm.WorldRank(rank)); err != nil {
			return nil, named("connect", rank, err)
		}
	}
	w.poller.Lock()
	defer w.poller.Unlock()
	if err := w.usable("connect"); err != nil {
		return nil, err
	}
	t := &w.targets[rank]
	if t.access == nil {
		if s == nil {
			t.access = e.OpenLocal(w.own)
		} else {
			t.access = e.OpenAccess(s, w.own.ID())
		}
		t.access.SetChecked(w.own.Checker() != nil)
		if s != nil && t.direct != nil {
			h := w.host.lockOf(w, rank)
			t.access.Share(h.Lock, h.IndexOf(w.comm.WorldRank(w.comm.Rank())))
		}
		w.touched = append(w.touched, rank)
	}
	return t.access, nil
}

// passive refuses a request-based call outside an epoch of a lock.
func (w *Win) passive(name string, rank int) error {
	if _, _, locked := w.epoch.Locked(rank); !locked {
		return newError(name, ErrRMASync, rank, "request-based calls need the epoch of a lock: call Lock or LockAll first")
	}
	return nil
}
