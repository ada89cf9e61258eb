package onesided

import (
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/mpierr"
)

// op is an operation that awaits an answer from its target.
type op struct {
	next    int32 // the one before it at its target, or none; or the next in the free list
	prev    int32 // the one after it at its target, unless it is the newest
	gen     uint16
	used    bool
	sent    bool // all of it has been requested
	seen    bool // it waits for long
	asked   bool // the last inquiry was about it, and it has no answer yet
	access  *Access
	result  []byte
	left    int // bytes of result still to come
	request *Request
	scatter *scatter // where a result with gaps goes, in place of result; nil for others
}

// Request follows one operation, for the request-based calls.
type Request struct {
	left   int32
	err    *mpierr.Error
	fetch  *fetch  // that it is part of, or nil
	behind *Access // whose lock was asked for when it was issued, or nil
}

// Met reports whether the operation has completed at the origin.
func (r *Request) Met() bool { return r.left == 0 }

// Err returns why the operation failed, or nil.
func (r *Request) Err() error {
	if r.err == nil {
		return nil
	}
	return r.err
}

// opRoom reports whether one more operation may await an answer from s.
func (x *Origin) opRoom(s *Peer) bool {
	return x.opShare.Admits(s.Owed(), 1, int32(x.cfg.MaxOps)-x.pending)
}

// outstanding counts the operations that await an answer. It looks at all places.
func (x *Origin) outstanding() (n int) {
	for i := range x.ops {
		if x.ops[i].used {
			n++
		}
	}
	return n
}

// newOp returns a free place in the table of operations, or none.
func (x *Origin) newOp(a *Access, result []byte) int32 {
	if !x.opRoom(a.session) {
		return link.None
	}
	i := x.freeOp
	if i == link.None {
		n := len(x.ops)
		// The table doubles up to its limit, so that a rank that has little
		// outstanding has a small table.
		grown := make([]op, min(max(64, 2*n), x.cfg.MaxOps))
		copy(grown, x.ops)
		x.ops = grown
		for j := len(grown) - 1; j >= n; j-- {
			grown[j].gen = 1
			grown[j].next = x.freeOp
			x.freeOp = int32(j)
		}
		i = x.freeOp
	}
	o := &x.ops[i]
	x.freeOp = o.next
	o.used, o.access, o.result, o.left, o.request = true, a, result, len(result), nil
	x.enlist(i)
	a.pending++
	a.session.Owe(1)
	x.pending++
	return i
}

// enlist puts operation i before the others at its target.
func (x *Origin) enlist(i int32) {
	o, s := &x.ops[i], x.ops[i].access.session
	if o.next = s.newest; o.next != link.None {
		x.ops[o.next].prev = i
	}
	s.newest = i
}

// delist takes operation i out from among the others at its target.
func (x *Origin) delist(i int32) {
	o := &x.ops[i]
	if s := o.access.session; s.newest == i {
		s.newest = o.next
	} else {
		x.ops[o.prev].next = o.next
	}
	if o.next != link.None {
		x.ops[o.next].prev = o.prev
	}
}

func (x *Origin) token(i int32) uint32 { return uint32(x.ops[i].gen)<<16 | uint32(i) }

// find returns the operation that a token of s names, or none.
func (x *Origin) find(s *Peer, token uint32) int32 {
	i := int32(token & (maxOps - 1))
	if int(i) >= len(x.ops) {
		return link.None
	}
	o := &x.ops[i]
	if !o.used || o.gen != uint16(token>>16) || o.access.session != s {
		return link.None
	}
	return i
}

func (x *Origin) finish(i int32, err *mpierr.Error) {
	o := &x.ops[i]
	a := o.access
	x.delist(i)
	a.pending--
	a.session.Owe(-1)
	x.pending--
	r := o.request
	if r == nil && err != nil {
		a.fail(err)
	}
	if err != nil && a.lock == locking && o.asksLock() {
		a.lock = unlocked // the target is dead
	}
	if o.scatter != nil {
		x.freeScatter(o.scatter)
	}
	gen := o.gen + 1
	if gen == 0 {
		gen = 1
	}
	*o = op{gen: gen, next: x.freeOp}
	x.freeOp = i
	if r != nil {
		x.part(r, err)
	}
}

// part ends a part of what r follows, which tells the error.
func (x *Origin) part(r *Request, err *mpierr.Error) {
	r.left--
	if err != nil && r.err == nil {
		r.err = err
	}
	if r.left == 0 && r.fetch != nil {
		x.fetched(r.fetch)
	}
}

// failOps ends all operations that await an answer from s, or were kept back.
func (x *Origin) failOps(s *Peer) {
	x.dropAllDeferred(s, s.Failure())
	for s.newest != link.None {
		x.finish(s.newest, s.Failure())
	}
	s.lockOpen = nil
}

// endOps ends the operations for which over returns true.
func (x *Origin) endOps(err *mpierr.Error, over func(*op) bool) {
	for i := range x.ops {
		if o := &x.ops[i]; o.used && over(o) {
			x.finish(int32(i), err)
		}
	}
}

// asksLock reports whether o is a request for a lock, which has no result.
func (o *op) asksLock() bool { return o.result == nil && o.scatter == nil }
