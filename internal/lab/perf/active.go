package perf

import (
	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/rma"
)

// fenceOnce puts to the peer and fences; a fence went before.
func fenceOnce(r *rank, p Point) pass {
	origin := buffer.Bytes(r.out[:p.Bytes])
	return func() error {
		if err := r.win.Put(origin, r.peer(), rma.At(0)); err != nil {
			return err
		}
		return r.win.Fence(r.ctx, 0)
	}
}

// postOnce goes through an epoch of each kind with the peer.
func postOnce(r *rank, p Point) pass {
	origin, group := buffer.Bytes(r.out[:p.Bytes]), []int{r.peer()}
	return func() error {
		if err := r.win.Post(r.ctx, group, 0); err != nil {
			return err
		}
		if err := r.win.Start(r.ctx, group, 0); err != nil {
			return err
		}
		if err := r.win.Put(origin, r.peer(), rma.At(0)); err != nil {
			return err
		}
		if err := r.win.Complete(r.ctx); err != nil {
			return err
		}
		return r.win.Wait(r.ctx)
	}
}

// active makes a test out of passes that both ranks make as many of, each with the
// synchronisation that it needs.
func active(make func(*rank, Point) pass) func(*rank, Point) error {
	return func(r *rank, p Point) error {
		if p.Test == "fence" {
			if err := r.win.Fence(r.ctx, rma.ModeNoPrecede); err != nil {
				return err
			}
		}
		if err := r.inStep(make(r, p), 1); err != nil {
			return err
		}
		if p.Test == "fence" {
			if err := r.win.Fence(r.ctx, rma.ModeNoSucceed); err != nil {
				return err
			}
		}
		return r.gather()
	}
}
