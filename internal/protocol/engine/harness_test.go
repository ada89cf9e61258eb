package engine

import (
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/credentials"
	"github.com/xdprma/xdprma/internal/lab/fabric"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

// ranks are a few engines that a fabric joins.
type ranks struct {
	*fabric.Fabric
	e   []*Engine
	mem [][]byte
}

const (
	microsecond int64 = 1000

	testWindow = 7
	// testContexts are the contexts below it; all ranks may use them.
	testContexts = 16
	testJob      = 0x10b
	testLimit    = 5000 * millisecond // Config.DeadAfter by default
)

func newRanks(t testing.TB, n, memory int, change func(*Config)) *ranks {
	f := &ranks{Fabric: fabric.New(t, n), e: make([]*Engine, n), mem: make([][]byte, n)}
	f.Rank = func(r int) string { return fmt.Sprintf("%+v %+v", f.e[r].Usage(), f.e[r].Stats) }
	for r := range n {
		f.start(r, 1, n, memory, change)
	}
	return f
}

// start gives rank a new life.
func (f *ranks) start(rank int, incarnation uint64, size, memory int, change func(*Config)) {
	f.mem[rank] = make([]byte, memory)
	w, err := windows.New(windows.Config{
		ID: testWindow, Flavor: window.FlavorCreate, Memory: windows.Slice(f.mem[rank]),
		Size: memory, DispUnit: 1, GroupSize: size,
	})
	if err != nil {
		f.T.Fatal(err)
	}
	windows := &windows.Table{}
	if err := windows.Add(w); err != nil {
		f.T.Fatal(err)
	}
	id := uint64(rank+1)<<32 + incarnation<<20
	c := Config{
		LinkConfig: LinkConfig{
			Rank: rank, Size: size, Job: testJob, Incarnation: incarnation,
			Slab: HeapSlab(64, 0, 1472), Rand: func() uint64 { id++; return id },
			Seek: func(to int) { f.dial(rank, to) },
		},
		Windows: windows, Earlier: incarnation - 1,
	}
	if change != nil {
		change(&c)
	}
	f.e[rank] = New(c)
	f.Start(rank, f.e[rank].Link, c.Slab)
	for context := range uint32(testContexts) {
		f.e[rank].OpenContext(context, nil)
	}
}

func (f *ranks) dial(from, to int) *Session {
	if own := f.e[from].cfg.Credentials; own != nil {
		return f.e[from].DialBy(PathID(to), credentials.Ticket(to, f.e[to].cfg.Incarnation, own.Level))
	}
	return f.e[from].Dial(to, PathID(to), f.e[to].cfg.Incarnation)
}

// access dials and returns from's access to the window at to.
func (f *ranks) access(from, to int) *onesided.Access {
	a := f.e[from].OpenAccess(f.dial(from, to), testWindow)
	f.Until(1000*millisecond, func() bool { return sessionAt(a).Open() })
	return a
}

func (f *ranks) issue(e *Engine, c *onesided.Call) {
	f.T.Helper()
	f.Until(10_000*millisecond, func() bool {
		done, err := e.Issue(c)
		if err != nil {
			f.T.Fatal(err)
		}
		return done
	})
}

func (f *ranks) flush(e *Engine, a *onesided.Access) error {
	f.T.Helper()
	e.Flush(a)
	f.Until(10_000*millisecond, (*onesided.FlushWait)(a).Met)
	return a.TakeError()
}

// atRest fails the test unless no engine holds anything. Ranks that are cut off
// are left out.
func (f *ranks) atRest() {
	f.T.Helper()
	f.AtRest()
	for r, e := range f.e {
		if u := e.Usage(); !f.Cut[r] && u.Operations+u.LockWaits+u.Unexpected+u.Receives+u.Sends != 0 {
			f.T.Errorf("rank %d still holds something: %+v\n%s", r, u, f.Describe())
		}
	}
}

func kindOfFrame(b []byte) wire.Kind { return wire.Kind(b[5]) }
