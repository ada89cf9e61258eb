package rma

import (
	"context"
	"net"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/inside"
	"github.com/xdprma/xdprma/internal/protocol/calls/epochs"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
)

// turn locks the engine, and returns its one-sided operations, until one of the poller's ways of unlocking.
func (w *Win) turn() epochs.Turn {
	return w.poller.Lock().Operations
}

// run carries out a synchronisation call: it takes a step in a turn of the engine, and
// waits in between.
func (w *Win) run(ctx context.Context, c epochs.Call) error {
	defer w.poller.Guard()
	t := w.turn()
	if err := w.open(c.Name()); err != nil {
		w.poller.UnlockQuiet()
		return err
	}
	status := c.Step(t)
	for status != epochs.Over {
		var err error
		if status == epochs.Gathers {
			w.poller.Unlock()
			err = w.gather(ctx, c.Name(), c.Ends())
			t = w.turn()
			status = c.Met(t, err)
			continue
		}
		if err = w.poller.WaitLocked(ctx, c.Until()); err == nil && c.Settled() {
			return nil
		}
		t = w.turn()
		if err == nil {
			err = w.open(c.Name())
		}
		if err != nil {
			status = c.GiveUp(t, err)
		} else {
			status = c.Step(t)
		}
	}
	w.poller.Unlock()
	return c.Err()
}

// gather has the ranks of the window meet in the call op.
func (w *Win) gather(ctx context.Context, op string, ending bool) error {
	if ending {
		return inside.Barrier(ctx, w.ending, op)
	}
	return inside.Barrier(ctx, w.inner, op)
}

// forWindow returns the communicators of a window on c, nil if there is no such id.
func forWindow(c *comm.Comm, id uint32) (inner, ending *comm.Comm) {
	i, e := inside.ForWindow(c, id)
	return i.(*comm.Comm), e.(*comm.Comm)
}

// open returns nil unless the node has been closed. It is called with the engine's lock
// held.
func (w *Win) open(op string) error {
	if w.poller.Closed() {
		return newError(op, ErrClosed, NoRank, "the node: %w", net.ErrClosed)
	}
	return nil
}

// usable returns nil unless the window has been freed or the node closed. It is
// called with the engine's lock held.
func (w *Win) usable(op string) error {
	if err := w.open(op); err != nil {
		return err
	}
	return w.epochs.Usable(op)
}

// connect opens the access to a target. It is called with the engine's lock held, and
// waits for nothing.
func (w *Win) connect(t epochs.Turn, rank int) *onesided.Access {
	if rank == w.comm.Rank() {
		return t.OpenLocal(w.own)
	}
	a := t.OpenAccess(t.Connect(w.comm.WorldRank(rank)), w.own.ID())
	a.SetReach(w.targets[rank].reach)
	if w.targets[rank].mapped != nil {
		h := w.host.lockOf(w, rank)
		a.Share(h.Lock, h.IndexOf(w.comm.WorldRank(w.comm.Rank())))
	}
	return a
}
