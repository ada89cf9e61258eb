package rma

import (
	"math"
	"os"
	"slices"

	"github.com/xdprma/xdprma/userspace"
	"github.com/xdprma/xdprma/window"
)

// The XDP program of a target executes small requests itself where it reaches the
// window's memory. That is memory which Allocate has made in the kernel. Each target
// decides for itself, and the creation of the window tells the origins.

// reachable returns memory for this rank's window that its XDP program reaches, nil if
// there is to be none, or there is none to be had.
func (w *Win) reachable(size int) *userspace.Region {
	tier := w.poller.Device().Tier()
	limit := w.hints.Express
	if limit == 0 {
		limit = w.comm.Job().ExpressWindow()
	}
	if tier == nil || size == 0 || size > limit || w.hints.Check || w.hints.MinAlignment > os.Getpagesize() {
		return nil
	}
	r, err := tier.Allocate(size)
	if err != nil {
		w.comm.Job().Logger().Debug("a window is in ordinary memory", "bytes", size, "reason", err)
		return nil
	}
	return r
}

// expose has the XDP program execute requests for the window to be. It is called with the
// engine's lock held. Without a place for the window its memory is as any other.
func (w *Win) expose(c *window.Config) {
	if w.region != nil {
		members := make([]bool, slices.Max(c.Group)+1)
		for _, rank := range c.Group {
			members[rank] = true
		}
		if !w.region.Expose(c.ID, func(rank int) bool { return rank < len(members) && members[rank] }) {
			w.region = nil
		}
	}
	w.hints.Express = -1
	if w.region != nil {
		w.hints.Express = math.MaxInt
		lock := w.poller.Device().Tier().Tables().Lock(c.ID)
		c.Host = &window.Host{Lock: lock, Ranks: []int{w.comm.Job().Rank(), window.InKernel}}
	}
}

// Unattended reports whether small calls at a target need no thread of the target: the
// window is in memory that this process maps, or in memory where the target's XDP program
// executes them. Such calls do not wait for a target that computes or is stopped. The
// program executes calls of at most about a kilobyte on integers and bytes; docs/wire.md
// says which. It is false for a rank outside the window's.
func (w *Win) Unattended(target int) bool {
	w.poller.Lock()
	defer w.poller.UnlockQuiet()
	if uint(target) >= uint(len(w.targets)) || w.epochs.Freed() {
		return false
	}
	t := &w.targets[target]
	return t.direct != nil || t.reach
}
