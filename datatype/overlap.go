package datatype

import (
	"cmp"
	"slices"
)

// overlapPieces bounds how many pieces OverlapsSelf looks at one by one.
const overlapPieces = 1 << 16

// OverlapsSelf reports whether count entries of t surely have some byte twice,
// which makes them an erroneous target of a put or get buffer. True is always
// right. False is right too if the type's blocks lie one inside the gaps of
// another in at most 65536 pieces, or do not interleave at all, as blocks of
// vectors, arrays and structs do not; for larger interleaved layouts that are
// not denser than their memory it may miss an overlap.
//
// It may sort, and allocates: ask once a layout, not once a transfer. It panics
// if t is not committed or t.Bounds(count) fails.
func (t *Type) OverlapsSelf(count int) bool {
	p := t.committed()
	lo, hi, ok := reach(p.elements, p.extent, int64(count))
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
	return p.size*int64(count) > hi-lo || t.overlapsExactly(count)
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
