package datatype

import "sort"

// Iter walks the memory of some entries of a type in packed order, piece by
// piece. It is a value of a few hundred bytes that needs no allocation. The zero value is at the end
// of nothing. A copy walks on by itself.
type Iter struct {
	off    int64 // the next byte, counted from displacement 0
	left   int64 // bytes left in the current block
	blocks int64 // blocks of the current run after it
	start  int64 // where the current block starts
	length int64 // bytes of a block
	stride int64 // from block to block
	mask   int64 // the element's size less one if pieces are whole elements, else 0
	pos    int64 // bytes walked over
	total  int64
	basic  Basic
	whole  bool
	flat   bool // all entries are blocks of one run
	depth  uint8

	root         ref
	entry, count int64
	extent       int64
	stack        [maxDepth]frame
}

// frame is a loop or list that the walk is inside of: which part of it, and
// where its origin is.
type frame struct {
	node     *node
	index    int64
	position int64
}

// Reset places the iterator before the first byte of count entries of t, whose
// data it will walk as bytes: pieces are joined across datatypes and cut
// anywhere.
//
// It panics if t is not committed, or if t.Bounds(count) fails.
func (it *Iter) Reset(t *Type, count int) {
	p := t.mustCompiled()
	it.reset(p, p.bytes, int64(count), false)
}

// ResetElements is Reset for a walk over elements: each piece is a whole number
// of elements of one datatype.
func (it *Iter) ResetElements(t *Type, count int) {
	p := t.mustCompiled()
	it.reset(p, p.elements, int64(count), true)
}

func (it *Iter) reset(p *compiled, root ref, count int64, whole bool) {
	if _, _, ok := boundsOf(p.elements, p.extent, count); !ok {
		panic("datatype: the count is negative or too large for the datatype")
	}
	it.root, it.count, it.extent, it.whole = root, count, p.extent, whole
	it.total = p.size * count
	it.flat = false
	if it.total > 0 && root.node.kind == kindRun {
		it.flatten(root.node)
	}
	it.seek(0)
}

// flatten takes all entries for one run if that is what they are.
func (it *Iter) flatten(n *node) {
	switch {
	case n.count == 1 && (it.count == 1 || it.extent == n.length):
		it.use(n, it.total, 0)
	case n.count == 1:
		it.use(n, n.length, it.extent)
	case it.count == 1 || it.extent == n.count*n.stride:
		it.use(n, n.length, n.stride)
	default:
		return
	}
	it.flat = true
}

// use makes blocks of n's elements the current ones.
func (it *Iter) use(n *node, length, stride int64) {
	it.length, it.stride, it.basic, it.mask = length, stride, n.basic, 0
	if it.whole {
		it.mask = int64(n.basic.Size()) - 1
	}
}

// Size returns the bytes of data in all.
func (it *Iter) Size() int64 { return it.total }

// Packed returns how many bytes of data come before the next piece.
func (it *Iter) Packed() int64 { return it.pos }

// Remaining returns the bytes of data that are still to come.
func (it *Iter) Remaining() int64 { return it.total - it.pos }

// SeekPacked makes the byte at pos of the packed data the next, in a time that
// depends on how deep the type is nested and on the logarithm of its irregular
// blocks. It returns false, and the walk is at its end, if pos is negative or
// beyond the data, or if it is inside an element that must stay whole.
func (it *Iter) SeekPacked(pos int64) bool {
	ok := pos >= 0 && pos <= it.total
	if ok {
		it.seek(pos)
		ok = (it.off-it.start)&it.mask == 0
	}
	if !ok {
		it.seek(it.total)
	}
	return ok
}

func (it *Iter) seek(pos int64) {
	it.pos, it.depth = pos, 0
	switch {
	case pos == it.total:
		it.off, it.start, it.left, it.blocks = 0, 0, 0, 0
		it.entry = it.count
	case it.flat:
		it.block(it.root.off, it.total/it.length, pos)
		it.entry = it.count
	default:
		size := it.root.node.size
		it.entry = pos / size
		it.enter(it.root.node, it.root.off+it.entry*it.extent, pos-it.entry*size)
	}
}

// enter goes down from n, whose origin is at position, to the byte at rest of
// its data.
func (it *Iter) enter(n *node, position, rest int64) {
	for n.kind != kindRun {
		index := int64(0)
		f := &it.stack[it.depth]
		it.depth++
		if n.kind == kindLoop {
			if rest != 0 {
				index = rest / n.body.size
				rest -= index * n.body.size
			}
			*f = frame{n, index, position}
			position += index * n.stride
			n = n.body
			continue
		}
		if rest != 0 {
			index = int64(sort.Search(len(n.items), func(i int) bool { return n.items[i].at > rest })) - 1
			rest -= n.items[index].at
		}
		*f = frame{n, index, position}
		position += n.items[index].disp
		n = n.items[index].node
	}
	it.use(n, n.length, n.stride)
	it.block(position, n.count, rest)
}

// block starts at the byte at rest of count blocks, of which the first is at
// position.
func (it *Iter) block(position, count, rest int64) {
	index := int64(0)
	if rest >= it.length {
		index = rest / it.length
		rest -= index * it.length
	}
	it.start = position + index*it.stride
	it.off, it.left = it.start+rest, it.length-rest
	it.blocks = count - 1 - index
}

// Next returns the next piece of memory: where it is, in bytes from displacement
// 0, its length, which is at most limit, and the datatype of its elements, which
// in a walk over bytes is Byte if the type has elements of several datatypes. It
// returns false if the walk is at its end, or if not one whole element fits in
// limit; Remaining tells which.
func (it *Iter) Next(limit int) (offset int64, n int, basic Basic, ok bool) {
	if it.left == 0 && !it.advance() {
		return 0, 0, 0, false
	}
	take := min(it.left, int64(limit)&^it.mask)
	if take <= 0 {
		return 0, 0, 0, false
	}
	offset = it.off
	it.off += take
	it.left -= take
	it.pos += take
	return offset, int(take), it.basic, true
}

// advance goes to the next block. It returns false at the end.
func (it *Iter) advance() bool {
	if it.blocks > 0 {
		it.blocks--
		it.start += it.stride
		it.off, it.left = it.start, it.length
		return true
	}
	for it.depth > 0 {
		f := &it.stack[it.depth-1]
		f.index++
		n := f.node
		if n.kind == kindLoop && f.index < n.count {
			it.enter(n.body, f.position+f.index*n.stride, 0)
			return true
		}
		if n.kind == kindList && f.index < int64(len(n.items)) {
			next := &n.items[f.index]
			it.enter(next.node, f.position+next.disp, 0)
			return true
		}
		it.depth--
	}
	if it.entry+1 >= it.count {
		it.entry = it.count
		return false
	}
	it.entry++
	it.enter(it.root.node, it.root.off+it.entry*it.extent, 0)
	return true
}
