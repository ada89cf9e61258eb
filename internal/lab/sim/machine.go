package sim

import (
	"errors"
	"fmt"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/program"
	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// machine carries out a rank's part of a generated program with the state machines that
// package rma drives.
type machine struct {
	t        *task
	sessions []*engine.Session // nil for this rank
	windows  []*machineWindow
	comms    [2]collective.Comm // of the ranks in order, and in reverse order
}

// machineWindow is what a rank knows of a window, at all ranks.
type machineWindow struct {
	*epochsOf
	targets []machineTarget
}

type machineTarget struct {
	base   uint64          // dynamic: the address of the memory
	direct *windows.Window // where this rank maps the memory
}

// exposeProgram makes a rank's windows of the program, with ids from 1 on.
func (l *life) exposeProgram(p *program.Program) {
	for i := range p.Windows {
		d := &p.Windows[i]
		mem := make([]byte, d.Sizes[l.rank], max(16, d.Sizes[l.rank])) // aligned
		l.generated = append(l.generated, mem)
		if d.Flavor != window.FlavorDynamic {
			l.exposeWindow(windows.Config{
				ID: uint32(i + 1), Flavor: window.FlavorCreate, Memory: windows.Slice(mem), Size: len(mem), DispUnit: d.Units[l.rank],
				Counters: windows.NewCounters(program.NumCounters),
			}, mem)
			continue
		}
		own := l.exposeWindow(windows.Config{
			ID: uint32(i + 1), Flavor: d.Flavor, DispUnit: 1, Counters: windows.NewCounters(program.NumCounters),
		}, nil)
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
	for rank := range w.nodes {
		m.sessions = append(m.sessions, l.e.Connect(rank))
	}
	for i := range p.Windows {
		m.windows = append(m.windows, m.window(i))
	}
	var err error
	if l.records, err = program.Run(p, l.rank, m); err != nil {
		w.failf("%v", err)
	}
	m.free()
}

// window returns what the rank knows of window i of the program.
func (m *machine) window(i int) *machineWindow {
	w, l, id := m.t.w, m.t.l, uint32(i+1)
	mw := &machineWindow{targets: make([]machineTarget, len(w.nodes))}
	for rank, to := range w.nodes {
		x, there := &mw.targets[rank], to.windows.Lookup(id)
		if w.cfg.Program.Windows[i].Flavor == window.FlavorDynamic {
			x.base = windows.Address(to.generated[i])
		}
		if w.maps(l.rank, there) {
			x.direct = there
		}
	}
	own := l.e.Windows().Lookup(id)
	mw.epochsOf = l.newEpochs(own, simJob+2*(id+1), own.Checker() != nil, mw.loads, func(t epochs.Turn, rank int) *onesided.Access {
		if rank == l.rank {
			return t.OpenLocal(own)
		}
		a := l.access(l.e.Connect(rank), id)
		if d := mw.targets[rank].direct; d != nil {
			a.Share(d.Host().Lock, d.Host().IndexOf(l.rank))
		}
		return a
	})
	return mw
}

func (w *machineWindow) loads(target int) bool {
	return target == w.Rank || w.targets[target].direct != nil
}

// judge checks that the program allows all that the ranks saw.
func (w *World) judge() {
	var records [][]program.Record
	for _, l := range w.nodes {
		records = append(records, l.records)
	}
	if err := program.Judge(w.cfg.Program, records); err != nil {
		w.failf("%v", err)
	}
	w.checkFreed()
}

// Begin lets some time pass now and then, in which other ranks go on.
func (m *machine) Begin(step int) {
	m.t.doing = fmt.Sprintf("step %d", step)
	if w := m.t.w; w.chance(0.15) {
		m.t.sleep(w.span(0, 400*microsecond))
	}
}

func (m *machine) Fence(win int, assert window.Assert) error {
	w := m.windows[win] // a fence that is given up is the last one
	return m.t.synchronise(endless, w.epochsOf, w.Window.Fence(assert))
}

func (m *machine) Post(win int, group []int, assert window.Assert) error {
	return m.windows[win].Window.Post(m.t.turn(), group, assert)
}

func (m *machine) Start(win int, group []int, assert window.Assert) error {
	return m.windows[win].Window.Start(m.t.turn(), group, assert)
}

func (m *machine) Complete(win int) error {
	w := m.windows[win]
	return m.t.again(w.epochsOf, w.Window.Complete)
}

func (m *machine) Wait(win int, testing bool) error {
	w := m.windows[win]
	for testing {
		if over, err := w.Window.Test(m.t.turn()); over || err != nil {
			return err
		}
		m.t.sleep(m.t.w.span(1, 200*microsecond))
	}
	return m.t.again(w.epochsOf, w.Window.Wait)
}

func (m *machine) Lock(win, target int, exclusive bool, assert window.Assert) error {
	w, kind := m.windows[win], window.LockShared
	if exclusive {
		kind = window.LockExclusive
	}
	return m.t.again(w.epochsOf, func() epochs.Call { return w.Window.Lock(kind, target, assert) })
}

func (m *machine) Unlock(win, target int) error {
	w := m.windows[win]
	return m.t.again(w.epochsOf, func() epochs.Call { return w.Window.Unlock(target) })
}

func (m *machine) LockAll(win int, assert window.Assert) error {
	w := m.windows[win]
	return m.t.again(w.epochsOf, func() epochs.Call { return w.Window.LockAll(assert) })
}

func (m *machine) UnlockAll(win int) error {
	w := m.windows[win]
	return m.t.again(w.epochsOf, w.Window.UnlockAll)
}

func (m *machine) Flush(win, target int, local bool) error {
	w, done := m.windows[win], epochs.AtTarget
	if local {
		done = epochs.AtOrigin
	}
	return m.t.again(w.epochsOf, func() epochs.Call {
		if target == program.Every {
			return w.Window.FlushAll("flush_all", done)
		}
		if m.t.w.chance(0.3) {
			return w.Window.FlushRanks("flush_ranks", []int{target, target}, done)
		}
		return w.Window.Flush("flush", target, done)
	})
}

func (m *machine) Sync(int) error { return nil }

func (m *machine) Notify(win, target, counter int) error {
	w := m.windows[win]
	if err := w.MayAccess("notify", target, false); err != nil {
		return err
	}
	w.Used(target)
	o := epochs.Operation{Name: "notify", Target: target, Memory: w.targets[target].direct}
	o.Call = onesided.Call{Code: wire.CodeNotify, Notify: onesided.CounterAt(counter)}
	return m.t.carryOut(endless, w.Window, &o, nil)
}

func (m *machine) WaitNotified(win, counter int, atLeast uint64) (uint64, error) {
	x := &sleeper{}
	x.Name([]int{counter})
	x.Begin(m.windows[win].Window, atLeast, nil, m.t.l.e)
	for !m.t.waitNotified(m.t.impatience(), x) {
	}
	x.End()
	if x.Counter < 0 {
		return 0, x.Lost
	}
	return x.Number, nil
}

func (m *machine) Memory(win int) []byte { return m.t.l.generated[win] }

func (m *machine) Issue(c *program.Call, data, compare, result []byte) (func() error, error) {
	t, r := m.t, &onesided.Request{}
	wait := func() error {
		for !t.awaitAt(r, t.impatience(), r.Met) { // a wait that is given up changes nothing
		}
		return r.Err()
	}
	w, where, name := m.windows[c.Win], c.Where(), c.Code.String()
	if c.Target == program.Null {
		return wait, w.MayAccessNone(name, c.Requested)
	}
	if err := w.MayAccess(name, c.Target, c.Requested); err != nil || where.Count == 0 {
		return wait, err
	}
	w.Used(c.Target)
	x := &w.targets[c.Target]
	call := onesided.Call{Code: callCodes[c.Code], Op: c.Op, Basic: c.Basic(), Disp: x.base + uint64(c.Disp), Compare: compare}
	if c.Requested {
		call.Request = r
	}
	if c.Notifies {
		call.Notify = onesided.CounterAt(program.OfCalls)
	}
	origin, into := memory(&c.Origin, data), memory(&c.Result, result)
	var y *epochs.Derived
	if c.At.Layout == nil && origin.Type == nil && into.Type == nil || compare != nil || c.Code == program.FetchAndOp {
		call.Origin, call.Result = origin.Mem, into.Mem
	} else {
		y = &epochs.Derived{Origin: origin, Result: into, Type: where.Type, Count: where.Count, Size: where.Size()}
		if c.Reads() {
			y.Size = c.Origin.Size()
		}
	}
	for {
		p := endless
		if repeatable(c) {
			p = t.haste()
		}
		o := epochs.Operation{Call: call, Name: name, Target: c.Target, Memory: x.direct}
		if err := t.carryOut(p, w.Window, &o, y); !errors.Is(err, mpierr.Timeout) {
			return wait, err
		}
		if o.Access != nil {
			t.l.e.Flush(o.Access)
			t.awaitAt(o.Access, endless, (*onesided.FlushWait)(o.Access).Met)
		}
		t.leftAlone(result)
		*r = onesided.Request{}
	}
}

// repeatable reports whether a call that is made again, after a part of it, has the effect
// and the result that it has when it is made once.
func repeatable(c *program.Call) bool {
	switch {
	case c.Code == program.Put, c.Code == program.Get:
		return true
	case c.Fetches():
		return c.Op == datatype.NoOp && c.Code != program.CompareAndSwap
	}
	switch c.Op {
	case datatype.Replace, datatype.Min, datatype.Max, datatype.BAnd, datatype.BOr, datatype.LAnd, datatype.LOr, datatype.MinLoc, datatype.MaxLoc:
		return true
	}
	return false
}

var callCodes = map[program.CallCode]wire.Code{
	program.Put: wire.CodePut, program.Get: wire.CodeGet, program.Accumulate: wire.CodeAccumulate,
	program.GetAccumulate: wire.CodeGetAccumulate, program.FetchAndOp: wire.CodeGetAccumulate, program.CompareAndSwap: wire.CodeCompareSwap,
}

// memory returns a side of a call as the engine takes it.
func memory(s *program.Side, mem []byte) onesided.Local {
	if s.Layout == nil || mem == nil {
		return onesided.Local{}
	}
	low, high, _ := s.Type.Bounds(s.Count)
	if s.Type.Basic() != 0 && low == 0 && s.Type.Contiguous() {
		return onesided.Local{Mem: mem[s.Base : s.Base+int(high)]}
	}
	return onesided.Local{Mem: mem, Base: int64(s.Base), Type: s.Type, Count: s.Count}
}
