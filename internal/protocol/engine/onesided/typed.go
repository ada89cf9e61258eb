package onesided

import (
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// Local is memory of this process that a datatype describes: Count entries of
// Type, with displacement 0 at Mem[Base]. Without a Type it is Mem as it is.
type Local struct {
	Mem   []byte
	Base  int64
	Type  *datatype.Type
	Count int
}

// Typed is what a Call has that uses derived datatypes, in place of Origin and
// Result. Operations.Typed makes it. It is not disturbed if a datatype is freed.
type Typed struct {
	origin, result region
	target         *datatype.Type
	count          int
	size           int           // bytes of data
	way            way           // how the target is told where they go
	shift          int64         // where the target's one block is
	whole          datatype.Iter // over the target's elements
	end            int           // where the result of the current operation ends
}

// way is how requests name the memory at the target.
type way uint8

const (
	byType  way = iota // by the datatype's id
	byBlock            // by displacement: it is one block
	byPiece            // by displacement, block by block: the target cannot be told the datatype
)

// region is memory of this process with a place in its packed data.
type region struct {
	mem  []byte
	base int64
	flat bool // it has no gaps
	it   datatype.Iter
}

func (g *region) set(l *Local) {
	g.mem, g.base, g.flat = l.Mem, l.Base, l.Type == nil
	if g.flat {
		return
	}
	g.it.Reset(l.Type, l.Count)
	size := int(g.it.Size())
	if off, n, _, ok := g.it.Next(size); ok && n == size {
		at := l.Base + off
		g.mem, g.flat = l.Mem[at:at+int64(n)], true
	}
}

func (g *region) pack(dst []byte, at int) {
	if g.flat {
		copy(dst, g.mem[at:])
		return
	}
	seek(&g.it, at)
	g.it.Pack(dst, g.mem, g.base)
}

func (g *region) unpack(src []byte, at int) {
	if g.flat {
		copy(g.mem[at:], src)
		return
	}
	seek(&g.it, at)
	g.it.Unpack(g.mem, g.base, src)
}

func seek(it *datatype.Iter, at int) {
	if it.Packed() != int64(at) {
		it.SeekPacked(int64(at))
	}
}

// own gives y a copy of the data that the call reads.
func (y *Typed) own() {
	if y.origin.mem == nil {
		return
	}
	data := make([]byte, y.size)
	y.origin.pack(data, 0)
	y.origin = region{mem: data, flat: true}
}

// scatter is where the result of one operation goes.
type scatter struct {
	region
	from int // the operation's first byte in the packed data
	size int
}

// Typed returns what a call needs beside its target's displacement: the memory
// that it reads, that which its result goes to, count entries of the datatype at
// the target, and how many bytes of packed data it transfers. The datatypes are
// committed, their data is inside the memory, and the signatures of all begin with
// that of the data; an absent origin or result is a zero Local. It belongs to the
// engine again once Issue has reported that the call is complete.
func (x *Origin) Typed(origin, result *Local, target *datatype.Type, count, size int) *Typed {
	var y *Typed
	if n := len(x.typedPool); n > 0 {
		y = x.typedPool[n-1]
		x.typedPool = x.typedPool[:n-1]
	} else {
		y = &Typed{}
	}
	y.set(origin, result, target, count, size)
	return y
}

func (y *Typed) set(origin, result *Local, target *datatype.Type, count, size int) {
	y.origin.set(origin)
	y.result.set(result)
	y.target, y.count, y.size, y.way = target, count, size, byType
	y.whole.Reset(target, count)
	if off, n, _, _ := y.whole.Next(int(y.whole.Size())); n >= size {
		y.way, y.shift = byBlock, off
	}
	y.whole.ResetElements(target, count)
}

// forget lets go of the call's memory.
func (y *Typed) forget() { y.origin.mem, y.result.mem, y.target = nil, nil, nil }

// done takes back what a completed call had, which must not keep memory alive.
func (x *Origin) done(c *Call) {
	y := c.Typed
	c.Typed = nil
	y.forget()
	x.typedPool = append(x.typedPool, y)
}

func (x *Origin) freeScatter(sc *scatter) {
	sc.mem = nil
	x.scatterPool = append(x.scatterPool, sc)
}

// next returns the next bytes of the data, at most most: how many, and what to
// add to the displacement in a request that names them by displacement. No
// element is cut.
func (y *Typed) next(at, most int) (off int64, n int) {
	if y.way == byPiece {
		seek(&y.whole, at)
		off, n, _, _ = y.whole.Next(most)
		return off, n
	}
	if at+most < y.size {
		most = cut(y.target, &y.whole, int64(at), most)
	}
	if y.way == byBlock {
		off = y.shift + int64(at)
	}
	return off, most
}

// issueTyped is Issue for a call with derived datatypes at another rank.
func (x *Origin) issueTyped(s *Peer, c *Call) (bool, error) {
	if !x.sendTyped(s, c) {
		return false, nil
	}
	x.done(c)
	return true, nil
}

func (x *Origin) sendTyped(s *Peer, c *Call) bool {
	y, a := c.Typed, c.Access
	if y.size == 0 {
		return true
	}
	if c.at == y.size { // but for its notification
		return x.notify(c)
	}
	var d *givenType
	if y.way == byType {
		if d = s.given(y.target); d == nil || len(d.encoding) == 0 {
			y.way, d = byPiece, nil
		} else if !x.define(a, d) || a.lock == locking && s.lockBundle() != a {
			return false // the definition may have closed the bundle of a's lock
		}
	}
	switch {
	case !c.Code.Fetches():
	case c.token == 0:
		if !x.beginTyped(c) {
			return false
		}
	case x.find(s, c.token) == link.None:
		return true // a part was refused, which ended the whole
	}
	for range issueBudget {
		if c.at == y.size {
			return x.notified(c)
		}
		if !x.issuePiece(s, c, d) {
			return false
		}
		c.begun()
		if c.token == 0 || c.at < y.end {
			continue
		}
		x.ops[c.token&(maxOps-1)].sent = true
		if c.at < y.size {
			c.base, c.token = c.at, 0 // what is left is another operation's
			return false
		}
	}
	return c.at == y.size && x.notified(c)
}

// beginTyped makes the next operation of a call that is answered.
func (x *Origin) beginTyped(c *Call) bool {
	y := c.Typed
	y.end = y.size
	if y.size-c.base > maxResult {
		y.end = c.base + cut(y.target, &y.whole, int64(c.base), maxResult)
	}
	var result []byte
	if y.result.flat {
		result = y.result.mem[c.base:y.end:y.end]
	}
	i := x.newOp(c.Access, result)
	if i == link.None {
		return false
	}
	o := &x.ops[i]
	c.token = x.token(i)
	if c.Request != nil {
		c.Request.left++
		o.request = c.Request
	}
	if y.result.flat {
		return true
	}
	if n := len(x.scatterPool); n > 0 {
		o.scatter = x.scatterPool[n-1]
		x.scatterPool = x.scatterPool[:n-1]
	} else {
		o.scatter = &scatter{}
	}
	*o.scatter = scatter{region: y.result, from: c.base, size: y.end - c.base}
	o.left = o.scatter.size
	return true
}

// issuePiece sends the next record of a typed call, in the bundles of the
// untyped calls; d is the target's datatype if the record names it.
func (x *Origin) issuePiece(s *Peer, c *Call, d *givenType) bool {
	y, a := c.Typed, c.Access
	r := wire.Record{Code: c.Code, Window: a.window, Token: c.token, Flags: c.checkFlags()}
	extra, flags, end := 0, c.orderFlag(), y.size
	if d != nil {
		r.Flags |= wire.FlagTyped
		extra = wire.LayoutLen
		if s.Acked(link.Request) <= d.defined {
			flags = wire.FlagOrdered // the definition must not be overtaken
		}
	}
	if c.token != 0 {
		extra += wire.PartLen
		end = y.end
	}
	if c.Code.Accumulates() {
		r.Basic, r.Op = uint8(c.Basic), uint8(c.Op)
	}
	_, n := y.next(c.at, end-c.at)
	if c.Code == wire.CodeGet {
		n = askable(s.MaxPayload(), n)
	} else {
		n = x.fragment(s, n, extra, 1)
	}
	off, n := y.next(c.at, n)
	sent := n // bytes of operand
	if c.Code == wire.CodeGet || c.Op == datatype.NoOp {
		sent = 0
	}
	i := x.requestRoom(a, c.roomFor(extra+sent))
	if i == link.None {
		return false
	}
	r.Disp = c.Disp + uint64(off)
	if c.at+n == y.size {
		flags |= x.notifyWith(c, &r, i)
	}
	data := x.add(a, i, &r, extra+sent, flags)
	if d != nil {
		data = wire.Layout{Type: d.id, Count: uint64(y.count), Position: uint64(c.at)}.Put(data)
		d.lastUse = a.lastSeq
	}
	if c.token != 0 {
		wire.PutPart(data, uint32(c.at-c.base), uint32(n))
		data = data[wire.PartLen:]
	}
	if sent > 0 {
		y.origin.pack(data, c.at)
	}
	c.at += n
	return true
}
