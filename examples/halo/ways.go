package main

import (
	"context"
	"errors"

	"github.com/xdprma/xdprma/rma"
)

// way is how neighbours let each other know of rows that they have put. Two grids are enough to
// write to: a rank is at most one step ahead of its neighbours, since it waits for their rows of
// each step. So it writes to the grid of which they have read the halo in the step before.
type way struct {
	notifies    bool                                                   // puts do
	open, close func(ctx context.Context, h *part) error               // around all steps
	begin       func(ctx context.Context, h *part) error               // before this rank puts
	sent        func(ctx context.Context, h *part) error               // once it has put
	end         func(ctx context.Context, h *part, steps uint64) error // until the neighbours' rows are here
}

// The counters of a window, in the way of notifications: one for each neighbour and grid. A row
// may overtake the one of the step before, which goes to the other grid. So a counter for both
// would not say which of them is here.
//
// With a counter for each grid, a row is the only one on its way that a counter counts. For the
// neighbour puts the row of step s+2 after it has got this rank's row of step s+1, and this rank puts that one after
// it has got the neighbour's row of step s, and read it.
const (
	fromAbove = 0 // and the grid
	fromBelow = 2 // and the grid
	counters  = 4
)

func nothing(context.Context, *part) error { return nil }

var ways = map[string]way{
	// Each put notifies the neighbour of itself. FlushLocalAll has the rows leave now, and waits
	// for nobody.
	"notify": {
		notifies: true,
		open:     func(ctx context.Context, h *part) error { return h.win.LockAll(ctx) },
		close:    func(ctx context.Context, h *part) error { return h.win.UnlockAll(ctx) },
		begin:    nothing,
		sent:     func(ctx context.Context, h *part) error { return h.win.FlushLocalAll(ctx) },
		end: func(ctx context.Context, h *part, steps uint64) error {
			return errors.Join(h.await(ctx, h.above, fromAbove, steps), h.await(ctx, h.below, fromBelow, steps))
		},
	},
	// Post tells the neighbours that they may write to the halo, and Wait waits until they have.
	"post": {
		open: nothing, close: nothing,
		begin: func(ctx context.Context, h *part) error {
			neighbours := []int{h.above, h.below}
			return errors.Join(h.win.Post(ctx, neighbours), h.win.Start(ctx, neighbours))
		},
		sent: func(ctx context.Context, h *part) error { return h.win.Complete(ctx) },
		end:  func(ctx context.Context, h *part, _ uint64) error { return h.win.Wait(ctx) },
	},
	// A fence waits for all ranks, neighbours or not.
	"fence": {
		open:  func(ctx context.Context, h *part) error { return h.win.Fence(ctx, rma.ModeNoPrecede) },
		close: func(ctx context.Context, h *part) error { return h.win.Fence(ctx, rma.ModeNoSucceed) },
		begin: nothing, sent: nothing,
		end: func(ctx context.Context, h *part, _ uint64) error { return h.win.Fence(ctx) },
	},
}

// put copies a row to a neighbour, whose counter it counts up where puts notify.
func (h *part) put(row []float64, neighbour, disp, counter int) error {
	at := rma.At(disp)
	if h.way.notifies {
		at = at.Notify(counter)
	}
	return h.win.Put(row, neighbour, at)
}

// await waits until a neighbour has notified this rank of its row of the last of so many steps.
func (h *part) await(ctx context.Context, neighbour, from int, steps uint64) error {
	if neighbour == rma.ProcNull {
		return nil
	}
	// The row of every second step goes to the same grid: that of the first one to grid 1.
	_, err := h.win.WaitNotified(ctx, from+int(steps%2), (steps+1)/2)
	return err
}
