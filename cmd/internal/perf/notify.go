package perf

import (
	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/rma"
)

// notifyOnce makes a notified put there and back between two ranks, each of which waits for the
// other's.
func notifyOnce(r *rank, p Point) pass {
	origin := buffer.Bytes(r.out[:p.Bytes])
	put := func() error { return r.win.Put(origin, r.peer(), rma.At(0).Notify(0)) }
	wait := func() error {
		r.heard++
		_, err := r.win.WaitNotified(r.ctx, 0, r.heard)
		return err
	}
	return r.thereAndBack(put, wait)
}

// notifiedWindow is putWindow with a notification of each put. No call waits for them.
func notifiedWindow(r *rank, p Point) pass {
	origin := buffer.Bytes(r.out[:p.Bytes])
	return func() error {
		for i := range p.Window {
			if err := r.win.Put(origin, r.peer(), rma.At(int64(i*p.Bytes)).Notify(1)); err != nil {
				return err
			}
		}
		return r.flush()
	}
}
