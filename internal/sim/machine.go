package sim

import (
	"fmt"

	"github.com/xdprma/xdprma/internal/collective"
	"github.com/xdprma/xdprma/internal/engine"
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/program"
	"github.com/xdprma/xdprma/internal/wire"
	"github.com/xdprma/xdprma/window"
)

// machine carries out a rank's part of a generated program with the calls of the
// engine and of window.Epoch, as package rma does.
type machine struct {
	t        *task
	sessions []*engine.Session // nil for this rank
	windows  []*machineWindow
	comms    [2]collective.Comm // of the ranks in order, and in reverse order
	direct   engine.Direct
}

// machineWindow is what a rank knows of a window, at all ranks.
type machineWindow struct {
	epoch    *window.Epoch
	began    int64 // when LockAll was called
	own      *window.Window
	targets  []machineTarget
	started  []int
	exposure engine.ExposureWait
}

type machineTarget struct {
	*engine.Access
	base uint64 // dynamic: the address of the memory
	used bool   // in this epoch
	lazy bool   // the lock of lock_all has been asked for

	direct *window.Window // where this rank maps the memory
}

// exposeProgram makes a rank's windows of the program, with ids from 1 on.
func (l *life) exposeProgram(p *program.Program) {
	for i := range p.Windows {
		d := &p.Windows[i]
		mem := make([]byte, d.Sizes[l.rank])
		l.generated = append(l.generated, mem)
		if d.Flavor != window.FlavorDynamic {
			l.expose(uint32(i+1), mem, d.Units[l.rank])
			continue
		}
		own := l.exposeWindow(window.Config{ID: uint32(i + 1), Flavor: d.Flavor, DispUnit: 1})
		from := 0
		for _, to := range d.Cuts[l.rank] {
			if err := own.Attach(mem[from:to]); err != nil {
				panic(err)
			}
			from = to
		}
	}
}

// generated is the task of a rank that carries out a generated program.
func (t *task) generated() {
	w, l, p := t.w, t.l, t.w.cfg.Program
	m := &machine{t: t}
	m.communicators()
	for rank, to := range w.nodes {
		var s *engine.Session
		if to != l {
			s = l.e.Dial(w.now, rank, engine.PathID(rank), to.incarnation)
		}
		m.sessions = append(m.sessions, s)
	}
	for i := range p.Windows {
		id := uint32(i + 1)
		mw := &machineWindow{epoch: window.NewEpoch(l.rank, p.Ranks, false), own: l.e.Windows().Lookup(id)}
		for rank, to := range w.nodes {
			var x machineTarget
			if to == l {
				x.Access = l.e.OpenLocal(mw.own)
			} else {
				x.Access = l.e.OpenAccess(m.sessions[rank], id)
			}
			if p.Windows[i].Flavor == window.FlavorDynamic {
				x.base = window.Address(to.generated[i])
			}
			there := to.windows.Lookup(id)
			x.SetChecked(there.Checker() != nil)
			if h := there.Host(); h != nil && w.sameHost(l.rank, rank) {
				x.direct = there
				if to != l {
					x.Share(h.Lock, h.IndexOf(l.rank))
				}
			}
			mw.targets = append(mw.targets, x)
		}
		m.windows = append(m.windows, mw)
	}
	var err error
	if l.records, err = program.Run(p, l.rank, m); err != nil {
		w.failf("%v", err)
	}
}

// judge holds what the ranks saw to what the program allows.
func (w *World) judge() {
	var records [][]program.Record
	for _, l := range w.nodes {
		records = append(records, l.records)
	}
	if err := program.Judge(w.cfg.Program, records); err != nil {
		w.failf("%v", err)
	}
}

// Begin lets some time pass now and then, in which other ranks go on.
func (m *machine) Begin(step int) {
	m.t.doing = fmt.Sprintf("step %d", step)
	if w := m.t.w; w.chance(0.15) {
		m.t.sleep(w.span(0, 400*microsecond))
	}
}

// until tries again whenever there is room, until done.
func (m *machine) until(done, room func() bool) {
	for !done() {
		m.t.await(room)
	}
}

// complete ends what was issued to a target, there or at this rank.
func (m *machine) complete(x *machineTarget, local bool) error {
	e, now := m.t.l.e, m.t.w.now
	if local {
		e.FlushLocal(now, x.Access)
		m.t.await((*engine.LocalWait)(x.Access).Met)
	} else {
		e.Flush(now, x.Access)
		m.t.await((*engine.FlushWait)(x.Access).Met)
	}
	return x.TakeError()
}

func (m *machine) Fence(win int, assert window.Assert) error {
	w, e := m.windows[win], m.t.l.e
	if err := w.epoch.Fence(assert); err != nil {
		return err
	}
	for i := range w.targets {
		if x := &w.targets[i]; x.used {
			x.used = false
			e.FlushUnmarked(m.t.w.now, x.Access)
			m.t.await((*engine.FlushWait)(x.Access).Met)
			if err := x.TakeError(); err != nil {
				return err
			}
		}
	}
	if err := m.Barrier(); err != nil {
		return err
	}
	e.Ordered(w.own.ID())
	return m.Barrier()
}

func (m *machine) Post(win int, group []int, assert window.Assert) error {
	w, e := m.windows[win], m.t.l.e
	if err := w.epoch.Post(group, assert); err != nil {
		return err
	}
	if !e.Expose(w.own.ID(), true) {
		m.t.w.failf("rank %d: window %d is locked, and cannot be posted", m.t.l.rank, win)
	}
	w.exposure.Origins = nil
	for _, rank := range group {
		a := w.targets[rank].Access
		m.until(func() bool { return e.Post(m.t.w.now, a, assert&window.ModeNoCheck != 0) }, func() bool { return e.PostRoom(a) })
		w.exposure.Origins = append(w.exposure.Origins, a)
	}
	return nil
}

func (m *machine) Start(win int, group []int, assert window.Assert) error {
	w := m.windows[win]
	w.started = group
	for _, rank := range group {
		if assert&window.ModeNoCheck == 0 {
			m.t.l.e.Start(w.targets[rank].Access)
		}
	}
	return w.epoch.Start(group, assert)
}

func (m *machine) Complete(win int) error {
	w := m.windows[win]
	if err := w.epoch.Complete(); err != nil {
		return err
	}
	for _, rank := range w.started {
		if err := m.send(&engine.Call{Code: wire.CodeComplete, Access: w.targets[rank].Access}); err != nil {
			return err
		}
	}
	for _, rank := range w.started {
		x := &w.targets[rank]
		x.used = false
		m.t.await((*engine.LocalWait)(x.Access).Met)
		if err := x.TakeError(); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) Wait(win int, testing bool) error {
	w := m.windows[win]
	if err := w.epoch.CheckWait("wait"); err != nil {
		return err
	}
	for testing && !w.exposure.Met() {
		m.t.sleep(m.t.w.span(1, 200*microsecond))
	}
	m.t.await(w.exposure.Met)
	w.epoch.Waited()
	m.t.l.e.Expose(w.own.ID(), false)
	return nil
}

func (m *machine) Lock(win, target int, exclusive bool, assert window.Assert) error {
	w, kind := m.windows[win], window.LockShared
	if exclusive {
		kind = window.LockExclusive
	}
	if err := w.epoch.Lock(target, kind, assert); err != nil || assert&window.ModeNoCheck != 0 {
		return err
	}
	x := &w.targets[target]
	m.until(func() bool { return m.t.l.e.Lock(m.t.w.now, x.Access, exclusive) }, (*engine.RoomWait)(x.Access).Met)
	if target == m.t.l.rank {
		m.t.await((*engine.LockWait)(x.Access).Met)
	}
	return nil
}

// release gives the lock of a target back, and completes what was done under it.
func (m *machine) release(x *machineTarget, nocheck bool) error {
	e := m.t.l.e
	x.used, x.lazy = false, false
	if nocheck {
		return m.complete(x, false)
	}
	release := (*engine.ReleaseWait)(x.Access)
	m.until(func() bool { return e.Unlock(m.t.w.now, x.Access) }, release.Met)
	m.t.await((*engine.UnlockWait)(x.Access).Met)
	x.Unlocked()
	return x.TakeError()
}

func (m *machine) Unlock(win, target int) error {
	w := m.windows[win]
	_, assert, _ := w.epoch.Locked(target)
	if err := w.epoch.Unlock(target); err != nil {
		return err
	}
	return m.release(&w.targets[target], assert&window.ModeNoCheck != 0)
}

func (m *machine) LockAll(win int, assert window.Assert) error {
	m.windows[win].began = m.t.w.now
	return m.windows[win].epoch.LockAll(assert)
}

func (m *machine) UnlockAll(win int) error {
	w := m.windows[win]
	assert, _ := w.epoch.LockedAll()
	if err := w.epoch.UnlockAll(); err != nil {
		return err
	}
	for i := range w.targets {
		if x := &w.targets[i]; x.used {
			if err := m.release(x, assert&window.ModeNoCheck != 0); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *machine) Flush(win, target int, local bool) error {
	w := m.windows[win]
	if target != program.Every {
		if err := w.epoch.Flush(target); err != nil {
			return err
		}
		return m.complete(&w.targets[target], local)
	}
	if err := w.epoch.FlushAll(); err != nil {
		return err
	}
	for i := range w.targets {
		if x := &w.targets[i]; x.used {
			if err := m.complete(x, local); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *machine) Sync(int) error { return nil }

func (m *machine) Memory(win int) []byte { return m.t.l.generated[win] }

// send issues a call, waiting for room as often as it takes.
func (m *machine) send(c *engine.Call) (err error) {
	room := (*engine.RoomWait)(c.Access)
	m.until(func() bool {
		done, fault := m.t.l.e.Issue(m.t.w.now, c)
		err = fault
		return done || fault != nil
	}, room.Met)
	return err
}

func (m *machine) Issue(c *program.Call, data, compare, result []byte) (func() error, error) {
	w := m.windows[c.Win]
	r := &engine.Request{}
	wait := func() error { m.t.await(r.Met); return r.Err() }
	where := c.Where()
	if c.Target == program.Null || where.Count == 0 {
		return wait, nil
	}
	if err := w.epoch.Access(c.Target); err != nil {
		return nil, err
	}
	w.epoch.Used()
	x := &w.targets[c.Target]
	x.used = true
	if assert, all := w.epoch.LockedAll(); all && assert == 0 && !x.lazy {
		x.lazy = true
		m.until(func() bool { return m.t.l.e.LockPassing(m.t.w.now, x.Access, w.began) }, (*engine.RoomWait)(x.Access).Met)
	}
	call := engine.Call{Access: x.Access, Code: callCodes[c.Code], Op: c.Op, Basic: c.Basic(), Disp: x.base + uint64(c.Disp), Compare: compare}
	if c.Requested {
		call.Request = r
	}
	origin, into := memory(&c.Origin, data), memory(&c.Result, result)
	direct := x.direct != nil && (call.Basic.Size() <= 8 || x.Local()) && !m.t.w.chance(0.3) && m.t.l.e.Direct(x.Access)
	if direct {
		m.t.w.direct++
	}
	if c.At.Layout == nil && origin.Type == nil && into.Type == nil || compare != nil || c.Code == program.FetchAndOp {
		call.Origin, call.Result = origin.Mem, into.Mem
		if direct {
			return wait, refused(engine.Act(&call, x.direct))
		}
	} else {
		size := where.Size()
		if c.Reads() {
			size = c.Origin.Size()
		}
		if direct {
			return wait, refused(m.direct.ActTyped(&call, x.direct, &origin, &into, where.Type, where.Count, size))
		}
		call.Typed = m.t.l.e.Typed(&origin, &into, where.Type, where.Count, size)
	}
	return wait, m.send(&call)
}

// refused returns the error of a call that was to act at once.
func refused(class mpierr.Class) error {
	if class == mpierr.Success {
		return nil
	}
	return mpierr.New("direct", class, mpierr.NoRank, "a call on shared memory was refused")
}

var callCodes = map[program.CallCode]wire.Code{
	program.Put: wire.CodePut, program.Get: wire.CodeGet, program.Accumulate: wire.CodeAccumulate,
	program.GetAccumulate: wire.CodeGetAccumulate, program.FetchAndOp: wire.CodeGetAccumulate, program.CompareAndSwap: wire.CodeCompareSwap,
}

// memory returns a side of a call as the engine takes it.
func memory(s *program.Side, mem []byte) engine.Local {
	if s.Layout == nil || mem == nil {
		return engine.Local{}
	}
	low, high, _ := s.Type.Bounds(s.Count)
	if s.Type.Basic() != 0 && low == 0 && s.Type.Contiguous() {
		return engine.Local{Mem: mem[s.Base : s.Base+int(high)]}
	}
	return engine.Local{Mem: mem, Base: int64(s.Base), Type: s.Type, Count: s.Count}
}
