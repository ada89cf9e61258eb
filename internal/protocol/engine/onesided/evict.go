package onesided

import (
	"slices"

	"github.com/xdprma/xdprma/mpierr"
)

// Evict ends, with err, calls on any window whose results go to memory that is about to be
// unmapped. within tells that memory from other.
func (x *Origin) Evict(err *mpierr.Error, within func([]byte) bool) {
	for _, a := range x.own {
		x.evictCalls(a, err, within)
	}
	for rank := range x.cfg.Size {
		s := x.peer(rank)
		if s == nil {
			continue
		}
		s.deferring = slices.DeleteFunc(s.deferring, func(a *Access) bool {
			x.evictCalls(a, err, within)
			return a.queue.Empty()
		})
	}
	x.endOps(err, func(o *op) bool { return within(o.result) || o.scatter != nil && within(o.scatter.mem) })
}

// evictCalls fails the calls that a keeps back and whose result lies in the memory.
func (x *Origin) evictCalls(a *Access, err *mpierr.Error, within func([]byte) bool) {
	for i := a.queue.Len() - 1; i >= 0; i-- {
		d := a.queue.At(i)
		if !within(d.Result) && (d.Typed == nil || !within(d.Typed.result.mem)) {
			continue
		}
		if d.Request == nil {
			a.fail(err)
		}
		x.dropCall(a, i, err)
	}
}
