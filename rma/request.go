package rma

import (
	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/inside"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
)

// begin issues a call that is followed by a request; errors name it op.
func (w *Win) begin(op string, target int, issue func(r *onesided.Request) error) (*comm.Request, error) {
	r := &onesided.Request{}
	if err := issue(r); err != nil {
		return nil, named(op, target, err)
	}
	return inside.Request(w.poller, r, func() error { return w.report(named(op, target, r.Err())) }).(*comm.Request), nil
}

// Rput is Put with a request that completes when origin may be changed, which is at once
// (MPI_Rput, section 11.3.5). As all request-based calls it needs an epoch of a lock.
// After a Flush or Unlock the data is at the target; these calls also return an error of
// the target. It blocks as Put does. Classes as for Put.
func (w *Win) Rput(origin buffer.Buffer, target int, at Location) (_ *comm.Request, err error) {
	defer w.handle(&err)
	return w.begin("rput", target, func(r *onesided.Request) error { return w.put(r, origin, target, at) })
}

// Rget is Get with a request that completes when the data is in result (MPI_Rget,
// section 11.3.5). Classes as for Get.
func (w *Win) Rget(result buffer.Buffer, target int, at Location) (_ *comm.Request, err error) {
	defer w.handle(&err)
	return w.begin("rget", target, func(r *onesided.Request) error { return w.get(r, result, target, at) })
}

// Raccumulate is Accumulate with a request that completes when origin may be
// changed, which is at once (MPI_Raccumulate, section 11.3.5). Classes as for
// Accumulate.
func (w *Win) Raccumulate(origin buffer.Buffer, target int, at Location, op Op) (_ *comm.Request, err error) {
	defer w.handle(&err)
	return w.begin("raccumulate", target, func(r *onesided.Request) error { return w.accumulate(r, origin, target, at, op) })
}

// RgetAccumulate is GetAccumulate with a request that completes when the former
// values are in result (MPI_Rget_accumulate, section 11.3.5). Classes as for
// GetAccumulate.
func (w *Win) RgetAccumulate(origin, result buffer.Buffer, target int, at Location, op Op) (_ *comm.Request, err error) {
	defer w.handle(&err)
	return w.begin("rget_accumulate", target, func(r *onesided.Request) error {
		return w.getAccumulate(r, origin, result, target, at, op)
	})
}

// RfetchAndOp is FetchAndOp with a request that completes when the former value is
// in result. The standard has no such call. Classes as for FetchAndOp.
func (w *Win) RfetchAndOp(origin, result buffer.Buffer, target int, at Location, op Op) (_ *comm.Request, err error) {
	defer w.handle(&err)
	return w.begin("rfetch_and_op", target, func(r *onesided.Request) error { return w.fetchAndOp(r, origin, result, target, at, op) })
}

// RcompareAndSwap is CompareAndSwap with a request that completes when the former
// value is in result. The standard has no such call. Classes as for CompareAndSwap.
func (w *Win) RcompareAndSwap(origin, compare, result buffer.Buffer, target int, at Location) (_ *comm.Request, err error) {
	defer w.handle(&err)
	return w.begin("rcompare_and_swap", target, func(r *onesided.Request) error { return w.compareAndSwap(r, origin, compare, result, target, at) })
}
