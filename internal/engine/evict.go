package engine

import (
	"errors"
	"slices"

	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/window"
)

var errEvicted = errors.New("the memory has been freed with the window that it belongs to")

// Evict ends everything that would read or write the given memory later, which is about to
// be unmapped: results of calls on any window, receives, and messages that are being sent.
// They end with an error of class Win. The results are looked for by address, because no
// window knows which calls on other windows bring something into its memory.
func (e *Engine) Evict(now int64, mem []byte) {
	e.Now = now
	err := &mpierr.Error{Op: "window free", Class: mpierr.Win, Rank: mpierr.NoRank, Err: errEvicted}
	within := func(b []byte) bool { return overlap(b, mem) }
	for _, a := range e.own {
		e.evictCalls(a, err, within)
	}
	for rank := range e.cfg.Size {
		s := e.Session(rank)
		if s == nil {
			continue
		}
		s.deferring = slices.DeleteFunc(s.deferring, func(a *Access) bool {
			e.evictCalls(a, err, within)
			return a.queue.Empty()
		})
	}
	e.endOps(err, func(o *op) bool { return within(o.result) || o.scatter != nil && within(o.scatter.mem) })
	e.Exchange.Evict(err, within)
}

// evictCalls fails the calls that a keeps back and whose result lies in the memory.
func (e *Engine) evictCalls(a *Access, err *mpierr.Error, within func([]byte) bool) {
	for i := a.queue.Len() - 1; i >= 0; i-- {
		d := a.queue.At(i)
		if !within(d.Result) && (d.Typed == nil || !within(d.Typed.result.mem)) {
			continue
		}
		if d.Request == nil {
			a.fail(err)
		}
		e.dropCall(a, i, err)
	}
}

// overlap reports whether a and b have bytes in common.
func overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	x, y := window.Address(a), window.Address(b)
	return x < y+uint64(len(b)) && y < x+uint64(len(a))
}
