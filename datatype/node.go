package datatype

import (
	"cmp"
	"slices"
)

// maxDepth is how deep loops and lists may be nested, which bounds an Iter.
const maxDepth = 16

// node is a piece of a compiled layout. It names bytes relative to an origin
// that whoever refers to it chooses, in packed order, and at least one. Nodes
// never change once made, and may be part of many layouts.
//
// There are three kinds: a run is count blocks of length bytes each, stride
// apart; a loop is count copies of body, stride apart; a list is different
// nodes at given displacements. Their constructors merge what touches, so a
// layout with a pattern takes no more memory than the pattern.
type node struct {
	kind     kind
	basic    Basic // the datatype of all elements, 0 if they differ
	align    uint8 // the largest alignment that the Go compiler gives one of them
	depth    uint8 // how many loops and lists are nested
	disjoint bool  // surely no byte occurs twice
	size     int64 // bytes of data
	lo, hi   int64 // the bytes are in [lo, hi)

	count, stride int64
	length        int64
	body          *node
	items         []item
}

type kind uint8

const (
	kindRun kind = iota + 1
	kindLoop
	kindList
)

// item is one node of a list: where it is, and the bytes of data before it.
type item struct {
	disp, at int64
	node     *node
}

// ref is a node at a place; without a node it has no bytes.
type ref struct {
	off  int64
	node *node
}

func (r ref) size() int64 {
	if r.node == nil {
		return 0
	}
	return r.node.size
}

// bounds returns the range of r's bytes, 0 and 0 if it has none.
func (r ref) bounds() (lo, hi int64) {
	if r.node == nil {
		return 0, 0
	}
	return r.off + r.node.lo, r.off + r.node.hi
}

// newRun returns a run of one block of bytes, a whole number of elements.
func newRun(b Basic, bytes int64) *node {
	return &node{
		kind: kindRun, basic: b, align: uint8(goAlign(b)), disjoint: true,
		size: bytes, hi: bytes, count: 1, length: bytes,
	}
}

// goAlign is the alignment of a Go variable of type b, which for elements with
// two halves is that of a half.
func goAlign(b Basic) int {
	switch b {
	case BasicComplex64, BasicFloat32Int32, BasicInt32Int32, BasicInt16Int32:
		return 4
	}
	return b.Align()
}

// runCache finds runs that were made before, so that a list of many has few nodes.
type runCache [32]struct {
	basic                Basic
	bytes, count, stride int64
	ref                  ref
}

// run returns count blocks of bytes, stride apart.
func (c *runCache) run(b Basic, bytes, count, stride int64) (ref, error) {
	if count == 1 {
		stride = 0
	}
	e := &c[uint64(bytes*31+count*7+stride*3+int64(b))%uint64(len(c))]
	if e.basic == b && e.bytes == bytes && e.count == count && e.stride == stride {
		return e.ref, nil
	}
	r, err := newLoop(ref{node: newRun(b, bytes)}, count, stride)
	if err == nil {
		e.basic, e.bytes, e.count, e.stride, e.ref = b, bytes, count, stride, r
	}
	return r, err
}

// newLoop returns count copies of r, stride bytes apart.
func newLoop(r ref, count, stride int64) (ref, error) {
	if count == 0 || r.node == nil {
		return ref{}, nil
	}
	if count == 1 {
		return r, nil
	}
	body := r.node
	n := *body
	var c calc
	low, high := c.bounds(count, stride)
	n.size = c.mul(body.size, count)
	n.lo, n.hi = c.add(body.lo, low), c.add(body.hi, high)
	n.disjoint = body.disjoint && (stride >= body.hi-body.lo || -stride >= body.hi-body.lo)
	c.add(r.off, n.lo)
	c.add(r.off, n.hi)
	switch {
	case body.kind == kindRun && body.count == 1 && stride == body.length:
		n.length = n.size
	case body.kind == kindRun && body.count == 1:
		n.count, n.stride = count, c.in(stride)
	case body.kind != kindList && stride == c.mul(body.count, body.stride):
		n.count = count * body.count
		n.disjoint = body.disjoint // the step is the same, and so is what it covers
	default:
		n.kind, n.count, n.stride, n.length = kindLoop, count, c.in(stride), 0
		n.body, n.items = body, nil
		n.depth++
		if n.depth > maxDepth {
			return ref{}, errDepth
		}
	}
	return ref{r.off, &n}, c.err()
}

// newList returns the given pieces one after the other. It uses the memory of parts.
func newList(parts []ref) (ref, error) {
	parts = merge(splice(parts))
	switch len(parts) {
	case 0:
		return ref{}, nil
	case 1:
		return parts[0], nil
	}
	if step := parts[1].off - parts[0].off; regular(parts, step) {
		return newLoop(parts[0], int64(len(parts)), step)
	}
	first := parts[0]
	n := &node{kind: kindList, basic: first.node.basic, lo: first.node.lo, hi: first.node.hi}
	n.items = make([]item, len(parts))
	var c calc
	for i, p := range parts {
		disp := c.add(p.off, -first.off)
		n.items[i] = item{disp: disp, at: n.size, node: p.node}
		n.size = c.add(n.size, p.node.size)
		n.lo = min(n.lo, c.add(disp, p.node.lo))
		n.hi = max(n.hi, c.add(disp, p.node.hi))
		n.align = max(n.align, p.node.align)
		n.depth = max(n.depth, p.node.depth+1)
		if p.node.basic != n.basic {
			n.basic = 0
		}
	}
	if n.depth > maxDepth {
		return ref{}, errDepth
	}
	n.disjoint = apart(n.items)
	return ref{first.off, n}, c.err()
}

// spliceMax bounds the lists that are put into the list around them in place of
// a reference, so that shared parts do not multiply.
const spliceMax = 8

// short reports whether p is to be expanded in the list around it.
func (p ref) short() bool { return p.node.kind == kindList && len(p.node.items) <= spliceMax }

// splice drops what is empty and expands short lists.
func splice(parts []ref) []ref {
	if !slices.ContainsFunc(parts, func(p ref) bool { return p.node == nil || p.short() }) {
		return parts
	}
	out := make([]ref, 0, len(parts))
	for _, p := range parts {
		switch {
		case p.node == nil:
		case p.short():
			for _, it := range p.node.items {
				out = append(out, ref{p.off + it.disp, it.node})
			}
		default:
			out = append(out, p)
		}
	}
	return out
}

// merge joins blocks of one datatype that continue each other. It works in place.
func merge(parts []ref) []ref {
	out := parts[:0]
	fresh := false // the last node of out was made here and may grow
	for _, p := range parts {
		if len(out) > 0 {
			last := &out[len(out)-1]
			a, b := last.node, p.node
			if a.single() && b.single() && a.basic == b.basic && last.off+a.length == p.off && a.length+b.length <= maxSpan {
				if !fresh {
					last.node, fresh = newRun(a.basic, a.length), true
				}
				grow := last.node
				grow.length += b.length
				grow.size, grow.hi = grow.length, grow.length
				continue
			}
		}
		out = append(out, p)
		fresh = false
	}
	return slices.Clip(out)
}

// single reports whether n is one block.
func (n *node) single() bool { return n.kind == kindRun && n.count == 1 }

// regular reports whether parts are copies of one node, step bytes apart.
func regular(parts []ref, step int64) bool {
	for i := 1; i < len(parts); i++ {
		if parts[i].off-parts[i-1].off != step || !parts[i].node.equal(parts[0].node) {
			return false
		}
	}
	return true
}

// equal reports whether n and m are the same run, loop, or list. Lists that were
// made apart are taken for different: comparing them could take long.
func (n *node) equal(m *node) bool {
	for {
		if n == m {
			return true
		}
		if n.kind != m.kind || n.kind == kindList || n.basic != m.basic ||
			n.count != m.count || n.stride != m.stride || n.length != m.length {
			return false
		}
		if n.kind == kindRun {
			return true
		}
		n, m = n.body, m.body
	}
}

// apart reports whether every item is disjoint and their ranges do not meet.
func apart(items []item) bool {
	byPlace := func(a, b item) int { return cmp.Compare(a.disp+a.node.lo, b.disp+b.node.lo) }
	if !slices.IsSortedFunc(items, byPlace) {
		items = slices.Clone(items)
		slices.SortFunc(items, byPlace)
	}
	for i, it := range items {
		if !it.node.disjoint || i > 0 && items[i-1].disp+items[i-1].node.hi > it.disp+it.node.lo {
			return false
		}
	}
	return true
}
