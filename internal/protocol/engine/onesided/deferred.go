package onesided

import (
	"slices"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// deferred is a call that was made before it may act: the lock that it needs has
// not been granted, or the target has not posted. It has its own copy of the data
// that the caller may change again.
type deferred struct {
	Call
	start           uint32 // of the access epochs begun by Start, the one that it belongs to
	origin, compare []byte // memory of the copies
}

// keptCopy is the largest copy whose memory is kept for the next call.
const keptCopy = 64 << 10

// newDeferred returns a copy of c, from those that have been used before.
func (x *Origin) newDeferred(c *Call) *deferred {
	var d *deferred
	if n := len(x.deferredPool); n > 0 {
		d = x.deferredPool[n-1]
		x.deferredPool = x.deferredPool[:n-1]
	} else {
		d = &deferred{}
	}
	d.Call, d.start = *c, c.Access.starts
	d.origin, d.compare = append(d.origin[:0], c.Origin...), append(d.compare[:0], c.Compare...)
	d.Origin, d.Compare = d.origin, d.compare
	return d
}

func (x *Origin) freeDeferred(d *deferred) {
	if cap(d.origin) > keptCopy {
		d.origin = nil
	}
	d.Call = Call{}
	x.deferredPool = append(x.deferredPool, d)
}

// keepsBack reports whether calls on a may not act yet.
func (a *Access) keepsBack() bool { return a.lockAway() || int32(a.starts-a.posts) > 0 }

// lockAway reports whether the lock was asked for, is not known to be held, and
// calls can no longer travel with the request.
func (a *Access) lockAway() bool {
	return a.lock == locking && (a.session == nil || a.session.lockBundle() != a)
}

// gate keeps back a call that may not act yet (then it is done with for its
// caller), and one that comes while earlier ones are on their way out.
func (x *Origin) gate(c *Call) (done, stop bool) {
	a := c.Access
	switch {
	case a.keepsBack():
		x.deferCall(c)
		return true, true
	case !a.queue.Empty():
		return false, true
	}
	return false, false
}

func (x *Origin) deferCall(c *Call) {
	a := c.Access
	if c.Typed == nil && c.size() == 0 && !c.says() {
		return
	}
	d := x.newDeferred(c)
	if c.Typed != nil {
		d.Typed.own()
		c.Typed = nil
	}
	if d.answered() {
		a.results++
		if d.Request != nil {
			d.Request.left++
		}
	} else {
		d.Request = nil // at the origin it is complete
	}
	x.totals.Deferred++
	alone := a.queue.Empty()
	if a.queue.Join(d); alone && a.session != nil {
		a.session.deferring = append(a.session.deferring, a)
		a.session.Await() // if the peer dies, the calls must fail
	}
}

// says reports whether c is a call that tells the target something and touches no memory.
func (c *Call) says() bool { return !c.Code.Communicates() }

// answered reports whether the caller must leave memory alone until an answer.
func (c *Call) answered() bool { return answered(c.Code) }

// issueDeferred sends what s's accesses have kept back, as far as it may act and
// there is room.
func (x *Origin) issueDeferred(s *Peer) {
	for i := 0; i < len(s.deferring); {
		if x.issueQueue(s.deferring[i]); s.Dead() {
			return
		}
		if !s.deferring[i].queue.Empty() {
			i++
			continue
		}
		s.deferring = slices.Delete(s.deferring, i, i+1)
	}
}

func (x *Origin) issueQueue(a *Access) {
	for !a.queue.Empty() {
		d := a.queue.Head()
		if a.lockAway() || int32(d.start-a.posts) > 0 || d.Code == wire.CodeUnlock && a.lock == locking {
			return
		}
		at, token := d.at, d.token
		if done, err := x.issueNow(&d.Call); err != nil {
			return // the target is dead, or has left, which ends them all
		} else if !done {
			if d.at == at && d.token == token {
				a.session.Stall()
				return
			}
			continue
		}
		x.leaveQueue(a, 0, nil)
	}
	if m := a.mark; a.session == nil && m != markNone {
		a.mark = markNone
		x.wantMark(a, m)
	}
}

// leaveQueue takes call i of a's queue out.
func (x *Origin) leaveQueue(a *Access, i int, err *mpierr.Error) {
	d := a.queue.Leave(i)
	defer x.freeDeferred(d)
	if !d.answered() {
		return
	}
	a.results--
	if r := d.Request; r != nil {
		x.part(r, err)
	}
}

// dropDeferred fails what a has kept back, also what was issued in part: the answers to
// that would not end it.
func (x *Origin) dropDeferred(a *Access, err *mpierr.Error) {
	s := a.session
	if s != nil {
		s.deferring = slices.DeleteFunc(s.deferring, func(b *Access) bool { return a == b })
	}
	if !a.queue.Empty() {
		a.fail(err)
	}
	a.unwanted = false
	for !a.queue.Empty() { // the last may end the access: see fetched
		x.dropCall(a, 0, err)
	}
}

// dropCall fails call i of a's queue.
func (x *Origin) dropCall(a *Access, i int, err *mpierr.Error) {
	d := a.queue.At(i)
	if d.Typed != nil {
		x.done(&d.Call)
	}
	if o := x.find(a.session, d.token); o != link.None {
		x.finish(o, err)
	}
	x.leaveQueue(a, i, err)
}

// dropAllDeferred fails what is kept back for s, in the order in which it was
// begun.
func (x *Origin) dropAllDeferred(s *Peer, err *mpierr.Error) {
	for len(s.deferring) > 0 {
		x.dropDeferred(s.deferring[0], err)
	}
}
