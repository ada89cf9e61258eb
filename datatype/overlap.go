package datatype

import (
	"cmp"
	"slices"
)

// overlapPieces bounds how many pieces OverlapsSelf looks at one by one.
const overlapPieces = 1 << 16

// OverlapsSelf reports whether count entries of t have some byte twice. The standard
// forbids that on the side that a transfer writes to.
//
// True is always right. False is right too, unless blocks lie in the gaps
// between others, as those of vectors, arrays and Go structs do not, and there
// are more than 65536 blocks: then an overlap is found only if there is more
// data than memory for it.
//
// It may allocate and sort, but not again for as many entries or fewer while t is
// committed. It panics if t is not committed or t.Bounds(count) fails.
func (t *Type) OverlapsSelf(count int) bool {
	p := t.mustCompiled()
	lo, hi, ok := boundsOf(p.elements, p.extent, int64(count))
	if !ok {
		panic("datatype: the count is negative or too large for the datatype")
	}
	if lo == hi {
		return false
	}
	span := p.bytes.node.hi - p.bytes.node.lo
	if p.bytes.node.disjoint && (count == 1 || p.extent >= span || -p.extent >= span) {
		return false
	}
	if int64(count) <= p.apart.Load() {
		return false
	}
	if p.size*int64(count) > hi-lo || t.overlapsExactly(count) {
		return true
	}
	p.apart.Store(int64(count))
	return false
}

func (t *Type) overlapsExactly(count int) bool {
	type block struct{ lo, hi int64 }
	var blocks []block
	var it Iter
	it.Reset(t, count)
	for range overlapPieces {
		off, n, _, ok := it.Next(maxSpan)
		if !ok {
			break
		}
		blocks = append(blocks, block{off, off + int64(n)})
	}
	slices.SortFunc(blocks, func(a, b block) int { return cmp.Compare(a.lo, b.lo) })
	for i := 1; i < len(blocks); i++ {
		if blocks[i].lo < blocks[i-1].hi {
			return true
		}
	}
	return false
}
