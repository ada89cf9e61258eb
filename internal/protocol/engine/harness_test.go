package engine

import (
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

// fabric joins a few engines without threads or a clock: frames arrive at once,
// in order, unless filter says otherwise. A path is the rank that it leads to.
type fabric struct {
	t      testing.TB
	now    int64
	e      []*Engine
	mem    [][]byte
	cut    []bool // frames from and to these ranks vanish
	filter func(from, to int, payload []byte) (copies int)
	frames int // delivered

	announce func(rank int, opened []Opened, quiescing, closed []uint64) // may be nil
	reaped   [1]int32
}

const (
	microsecond int64 = 1000

	testWindow = 7
	// testContexts are the contexts below it; all ranks may use them.
	testContexts = 16
	testJob      = 0x10b
)

func newFabric(t testing.TB, ranks, memory int, change func(*Config)) *fabric {
	f := &fabric{t: t, now: 1000, e: make([]*Engine, ranks), mem: make([][]byte, ranks), cut: make([]bool, ranks)}
	for r := range ranks {
		f.start(r, 1, ranks, memory, change)
	}
	return f
}

// start gives rank a new life.
func (f *fabric) start(rank int, incarnation uint64, ranks, memory int, change func(*Config)) {
	f.mem[rank] = make([]byte, memory)
	w, err := window.New(window.Config{
		ID: testWindow, Flavor: window.FlavorCreate, Memory: window.Slice(f.mem[rank]),
		Size: memory, DispUnit: 1, GroupSize: ranks,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	windows := &window.Table{}
	if err := windows.Add(w); err != nil {
		f.t.Fatal(err)
	}
	id := uint64(rank+1)<<32 + incarnation<<20
	c := Config{
		Rank: rank, Size: ranks, Job: testJob, Incarnation: incarnation, Windows: windows,
		Slab: HeapSlab(64, 0, 1472), Rand: func() uint64 { id++; return id }, Earlier: incarnation - 1,
		Seek: func(to int) { f.dial(rank, to) },
	}
	if change != nil {
		change(&c)
	}
	f.e[rank] = New(c)
	f.e[rank].Now = f.now
	for context := range uint32(testContexts) {
		f.e[rank].OpenContext(context, nil)
	}
}

// advance lets time pass until t.
func (f *fabric) advance(t int64) {
	f.now = t
	for _, e := range f.e {
		e.Now = t
	}
}

// step lets every engine act and delivers what they send; it reports whether
// anything was sent.
func (f *fabric) step() bool {
	moved := false
	for from, e := range f.e {
		e.Tick()
		if opened, quiescing, closed := e.Announcements(); f.announce != nil {
			f.announce(from, opened, quiescing, closed)
		}
		for len(e.Output()) > 0 {
			moved = true
			o := e.Output()[0]
			f.deliver(from, int(o.Path), e.cfg.Slab.Payload(o.Slot)[:o.Len])
			e.Took(1)
			f.reaped[0] = o.Slot
			e.Reaped(f.reaped[:])
		}
	}
	return moved
}

func (f *fabric) deliver(from, to int, payload []byte) {
	if f.cut[from] || f.cut[to] {
		return
	}
	copies := 1
	if f.filter != nil {
		copies = f.filter(from, to, payload)
	}
	for range copies {
		f.frames++
		f.e[to].Receive(payload, PathID(from))
	}
}

// settle runs without letting time pass until nothing moves.
func (f *fabric) settle() {
	for range 10_000 {
		if !f.step() {
			return
		}
	}
	f.t.Fatal("the engines never come to rest")
}

// until lets time pass until done, at most limit.
func (f *fabric) until(limit int64, done func() bool) {
	f.t.Helper()
	end := f.now + limit
	for range 1_000_000 {
		f.settle()
		if done() {
			return
		}
		next := Never
		for _, e := range f.e {
			next = min(next, e.Deadline())
		}
		if next == Never || next > end {
			f.t.Fatalf("not done after %d ms (next deadline %d, now %d)\n%s", limit/millisecond, next, f.now, f.describe())
		}
		f.advance(max(f.now+1, next))
	}
	f.t.Fatal("the engines are busy without end")
}

func (f *fabric) describe() (s string) {
	for r, e := range f.e {
		s += fmt.Sprintf("rank %d: %+v\n        %+v\n", r, e.Usage(), e.Stats)
	}
	return s
}

// pass lets time go by.
func (f *fabric) pass(d int64) {
	f.t.Helper()
	for n, end := 0, f.now+d; ; n++ {
		if n > 100_000 {
			f.t.Fatalf("the engines are busy without end\n%s", f.describe())
		}
		f.settle()
		next := end
		for _, e := range f.e {
			next = min(next, e.Deadline())
		}
		if f.now >= end {
			return
		}
		f.advance(max(f.now+1, next))
	}
}

func (f *fabric) dial(from, to int) *Session {
	return f.e[from].Dial(to, PathID(to), f.e[to].cfg.Incarnation)
}

// access dials and returns from's access to the window at to.
func (f *fabric) access(from, to int) *onesided.Access {
	a := f.e[from].OpenAccess(f.dial(from, to), testWindow)
	f.until(1000*millisecond, func() bool { return sessionAt(a).Open() })
	return a
}

func (f *fabric) issue(e *Engine, c *onesided.Call) {
	f.t.Helper()
	f.until(10_000*millisecond, func() bool {
		done, err := e.Issue(c)
		if err != nil {
			f.t.Fatal(err)
		}
		return done
	})
}

func (f *fabric) flush(e *Engine, a *onesided.Access) error {
	f.t.Helper()
	e.Flush(a)
	f.until(10_000*millisecond, (*onesided.FlushWait)(a).Met)
	return a.TakeError()
}

// atRest fails the test unless no engine holds anything. Ranks that are cut off
// are left out.
func (f *fabric) atRest() {
	f.t.Helper()
	f.pass(20_000 * millisecond)
	for r, e := range f.e {
		if f.cut[r] {
			continue
		}
		u := e.Usage()
		u.Sessions, u.TypeBytes = 0, 0
		if want := (Usage{Slots: e.cfg.Slab.Slots, FreeSlots: e.cfg.Slab.Slots}); u != want {
			f.t.Errorf("rank %d still holds something: %+v\n%s", r, u, f.describe())
		}
		if e.Deadline() != Never {
			f.t.Errorf("rank %d has a deadline in %d ns", r, e.Deadline()-f.now)
		}
	}
}

func kindOfFrame(b []byte) wire.Kind { return wire.Kind(b[5]) }
