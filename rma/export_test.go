package rma

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/inside"
	"github.com/xdprma/xdprma/internal/launch/hostmem"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
)

// Silence stops the node without a word to anyone, as a process that is killed
// does: its socket is closed and nothing is served any more.
func (n *Node) Silence() { _ = n.job.Poller().Close() }

// SilenceWaiting is Silence once the node waits in a collective and has sent the others
// what it can.
func (n *Node) SilenceWaiting() {
	for {
		e := n.job.Poller().Lock()
		u := e.Usage()
		n.job.Poller().UnlockQuiet()
		if u.Receives == 1 && u.FreeSlots == u.Slots {
			n.Silence()
			return
		}
		runtime.Gosched()
	}
}

// Usage returns what the engine of the window's node holds.
func (w *Win) Usage() engine.Usage {
	e := w.poller.Lock()
	defer w.poller.UnlockQuiet()
	return e.Usage()
}

// LockWaits returns how many requests wait for locks of the node's windows.
func (n *Node) LockWaits() int {
	e := n.job.Poller().Lock()
	defer n.job.Poller().UnlockQuiet()
	return e.Usage().LockWaits
}

// CreateInSteps is a collective creation of a window without memory, which calls between
// before the last exchange of the ranks.
func CreateInSteps(ctx context.Context, c *comm.Comm, between func()) (*Win, error) {
	w := &Win{comm: c, makers: c, job: inside.Job(c), poller: inside.Job(c).Poller(), exposed: &exposed{windows: 1}, targets: make([]target, c.Size())}
	proposals, err := w.propose(ctx, 0, 1, nil)
	if err != nil {
		return nil, err
	}
	between()
	return w, w.register(ctx, windows.Config{Flavor: FlavorCreate, DispUnit: 1}, proposals, nil)
}

// IDOf returns the id that requests for w carry.
func IDOf(w *Win) uint32 { return w.own.ID() }

// FailMaps has every nth mapping of a host's memory fail, until restore is called.
func FailMaps(n int32) (restore func()) {
	was, count := openSegment, atomic.Int32{}
	openSegment = func(p hostmem.Place) (*hostmem.Segment, error) {
		if count.Add(1)%n == 0 {
			return nil, errors.New("a test has it fail")
		}
		return was(p)
	}
	return func() { openSegment = was }
}

// Hold stops the node, as a process that is stopped, until release is called.
func (n *Node) Hold() (release func()) {
	n.job.Poller().Lock()
	return n.job.Poller().Unlock
}

// Acting returns how many calls use a window's memory at this moment.
func Acting(w *Win) int32 { return w.acting.Load() }

// PanicInEngine panics as a fault of the engine does in a call.
func (n *Node) PanicInEngine() {
	n.job.InEngine(func(*engine.Engine) { panic("a fault of the engine") })
}
