package program

import (
	"math/rand/v2"

	"github.com/xdprma/xdprma/datatype"
)

// Layout is a datatype, and what the model knows of it: nothing of that comes from
// the datatype.
type Layout struct {
	Type          *datatype.Type
	elements      []element // of one entry, in packed order
	low, high     int       // the first byte of elements, and the one after the last
	size          int       // of all elements
	lower, extent int
	explicit      bool // the bounds are set, and count alone in what is made of it
}

// element is one element of an entry: where it is, and its predefined datatype.
type element struct {
	at    int
	basic datatype.Basic
}

func plain(b datatype.Basic) *Layout {
	return &Layout{Type: b.Type(), elements: []element{{0, b}}, high: b.Size(), size: b.Size(), extent: b.Size()}
}

// block is n entries of a layout, displaced by at bytes.
type block struct {
	at, n int
	old   *Layout
}

// layoutOf returns the layout of blocks, which the datatype t was made of too.
func layoutOf(t *datatype.Type, err error, blocks []block) *Layout {
	if err == nil {
		err = t.Commit()
	}
	if err != nil {
		panic(err)
	}
	n := 0
	for _, b := range blocks {
		n += b.n * len(b.old.elements)
	}
	l := &Layout{Type: t, elements: make([]element, 0, n)}
	lower, upper, first := 0, 0, true
	for _, b := range blocks {
		for i := range b.n {
			at := b.at + i*b.old.extent
			l.add(at, b.old)
			if !b.old.explicit {
				continue
			}
			low, high := at+b.old.lower, at+b.old.lower+b.old.extent
			if first {
				lower, upper, first = low, high, false
			}
			lower, upper = min(lower, low), max(upper, high)
		}
	}
	if l.explicit = !first; !l.explicit {
		lower, upper = l.low, l.high
		align := 1
		for _, e := range l.elements {
			align = max(align, alignment(e.basic))
		}
		upper = lower + (upper-lower+align-1)/align*align
	}
	l.lower, l.extent = lower, upper-lower
	return l
}

// add puts the elements of an entry of old at a displacement into l.
func (l *Layout) add(at int, old *Layout) {
	if len(old.elements) == 0 {
		return
	}
	if low, high := at+old.low, at+old.high; len(l.elements) == 0 {
		l.low, l.high = low, high
	} else {
		l.low, l.high = min(l.low, low), max(l.high, high)
	}
	l.size += old.size
	for _, e := range old.elements {
		l.elements = append(l.elements, element{at + e.at, e.basic})
	}
}

// alignment is that of a Go variable, to whose multiples extents are rounded up.
func alignment(b datatype.Basic) int {
	switch b {
	case datatype.BasicComplex64, datatype.BasicFloat32Int32, datatype.BasicInt32Int32, datatype.BasicInt16Int32:
		return 4
	}
	return min(b.Size(), 8)
}

func (l *Layout) resized(lower, extent int) *Layout {
	t, err := datatype.Resized(l.Type, lower, extent)
	r := layoutOf(t, err, nil)
	r.elements, r.low, r.high, r.size = l.elements, l.low, l.high, l.size
	r.lower, r.extent, r.explicit = lower, extent, true
	return r
}

// each calls f with each element of s, displacements from displacement 0.
func (s *Side) each(f func(at int, b datatype.Basic)) {
	if s.Layout == nil {
		return
	}
	for i := range s.Count {
		for _, e := range s.elements {
			f(i*s.extent+e.at, e.basic)
		}
	}
}

// bounds returns the first byte of s and the one after the last.
func (s *Side) bounds() (low, high int) {
	if s.Layout == nil || s.Count == 0 || len(s.elements) == 0 {
		return 0, 0
	}
	last := (s.Count - 1) * s.extent
	return s.low + min(0, last), s.high + max(0, last)
}

// overlaps reports whether s has some byte twice.
func (s *Side) overlaps() bool {
	low, high := s.bounds()
	touched, twice := make([]bool, high-low), false
	s.each(func(at int, b datatype.Basic) {
		for i := range b.Size() {
			twice = twice || touched[at-low+i]
			touched[at-low+i] = true
		}
	})
	return twice
}

// Size returns the bytes of data.
func (s *Side) Size() int {
	if s.Layout == nil {
		return 0
	}
	return s.Count * s.size
}

// maker makes random layouts.
type maker struct {
	*rand.Rand
	grain int // all displacements are multiples of it
}

func (m maker) between(low, high int) int { return low + m.IntN(high-low+1) }

func (m maker) chance(p float64) bool { return m.Float64() < p }

// gap returns a number of bytes to leave free.
func (m maker) gap() int {
	if m.chance(0.4) {
		return 0
	}
	return m.grain * m.between(1, 3)
}

// divisor returns a random divisor of n.
func (m maker) divisor(n int) int {
	var all []int
	for d := 1; d*d <= n; d++ {
		if n%d == 0 {
			all = append(all, d, n/d)
		}
	}
	return all[m.IntN(len(all))]
}

// side returns memory of n elements of b.
func (m maker) side(n int, b datatype.Basic) Side {
	if n == 0 {
		return Side{Layout: m.uniform(m.between(1, 4), b, 1)}
	}
	if rows := m.divisor(n); m.chance(0.1) && rows < n { // columns of a matrix
		columns := n / rows
		t, err := datatype.Vector(rows, 1, columns, b.Type())
		blocks := make([]block, rows)
		for i := range blocks {
			blocks[i] = block{i * columns * b.Size(), 1, plain(b)}
		}
		return Side{Layout: layoutOf(t, err, blocks).resized(0, b.Size()), Count: columns}
	}
	count := m.divisor(n)
	return Side{Layout: m.uniform(n/count, b, m.IntN(3)), Count: count}
}

// uniform returns a layout of n elements of b, nested up to depth deep.
func (m maker) uniform(n int, b datatype.Basic, depth int) *Layout {
	old, inner := plain(b), 1
	if depth > 0 {
		inner = m.divisor(n)
		old = m.uniform(inner, b, depth-1)
		if m.chance(0.3) {
			before := m.gap()
			old = old.resized(old.lower-before, old.extent+before+m.gap())
		}
	}
	return m.arrange(n/inner, old)
}

// partition cuts n entries into blocks.
func (m maker) partition(n int) (lens []int) {
	longest := max(1, n/[]int{1, 3, 10, 100}[m.IntN(4)])
	for left := n; left > 0; {
		k := min(left, m.between(1, longest))
		lens, left = append(lens, k), left-k
	}
	return lens
}

// places lays blocks of old out in a random order of their places, in bytes; the
// gaps between them are multiples of unit.
func (m maker) places(lens []int, unit int, old *Layout) (disps []int, blocks []block) {
	at := -unit * m.between(0, 2)
	blocks, disps = make([]block, len(lens)), make([]int, len(lens))
	for _, i := range m.Perm(len(lens)) {
		disps[i], blocks[i] = at, block{at, lens[i], old}
		at += lens[i] * old.extent
		if m.chance(0.5) {
			at += unit * m.between(0, 2)
		}
	}
	return disps, blocks
}

// arrange returns a layout of n entries of old.
func (m maker) arrange(n int, old *Layout) *Layout {
	d := m.divisor(n)
	switch m.IntN(8) {
	case 0, 1: // vector and hvector
		stride, unit := d*old.extent, old.extent
		bytes := m.chance(0.5)
		if bytes {
			unit = m.grain
		}
		stride += unit * m.between(0, 3)
		if m.chance(0.2) {
			stride = -stride
		}
		blocks := make([]block, n/d)
		for i := range blocks {
			blocks[i] = block{i * stride, d, old}
		}
		if bytes || old.extent == 0 {
			t, err := datatype.Hvector(n/d, d, stride, old.Type)
			return layoutOf(t, err, blocks)
		}
		t, err := datatype.Vector(n/d, d, stride/old.extent, old.Type)
		return layoutOf(t, err, blocks)
	case 2: // hindexed
		lens := m.partition(n)
		disps, blocks := m.places(lens, m.grain, old)
		t, err := datatype.Hindexed(lens, disps, old.Type)
		return layoutOf(t, err, blocks)
	case 3: // indexed and indexed_block
		lens := m.partition(n)
		equal := m.chance(0.5)
		if equal {
			lens = make([]int, n/d)
			for i := range lens {
				lens[i] = d
			}
		}
		disps, blocks := m.places(lens, old.extent, old)
		for i := range disps {
			disps[i] /= old.extent
		}
		if equal {
			t, err := datatype.IndexedBlock(d, disps, old.Type)
			return layoutOf(t, err, blocks)
		}
		t, err := datatype.Indexed(lens, disps, old.Type)
		return layoutOf(t, err, blocks)
	case 4: // struct
		lens := m.partition(n)
		disps, blocks := m.places(lens, m.grain, old)
		types := make([]*datatype.Type, len(lens))
		for i := range types {
			types[i] = old.Type
		}
		t, err := datatype.Struct(lens, disps, types)
		return layoutOf(t, err, blocks)
	case 5: // subarray
		return m.subarray(n/d, d, old)
	}
	t, err := datatype.Contiguous(n, old.Type)
	return layoutOf(t, err, []block{{0, n, old}})
}

// subarray returns rows x columns of a larger matrix.
func (m maker) subarray(rows, columns int, old *Layout) *Layout {
	sub := []int{rows, columns}
	sizes, starts := make([]int, 2), make([]int, 2)
	for i := range sub {
		starts[i] = m.between(0, 2)
		sizes[i] = starts[i] + sub[i] + m.between(0, 2)
	}
	order, slow, fast := datatype.OrderC, 0, 1
	if m.chance(0.5) {
		order, slow, fast = datatype.OrderFortran, 1, 0
	}
	var blocks []block
	for i := range sub[slow] {
		for k := range sub[fast] {
			blocks = append(blocks, block{((starts[slow]+i)*sizes[fast] + starts[fast] + k) * old.extent, 1, old})
		}
	}
	t, err := datatype.Subarray(sizes, sub, starts, order, old.Type)
	l := layoutOf(t, err, blocks)
	l.lower, l.extent, l.explicit = 0, sizes[0]*sizes[1]*old.extent, true
	return l
}

// field is some elements of a datatype of several kinds of elements.
type field struct {
	basic datatype.Basic
	n     int
}

// mixed returns a layout with the elements of all fields.
func (m maker) mixed(fields []field) *Layout {
	after, before := m.gap(), m.gap()
	at := after - before
	var ones, disps []int
	var types []*datatype.Type
	var blocks []block
	for range fields {
		ones, disps, types, blocks = append(ones, 1), append(disps, 0), append(types, nil), append(blocks, block{})
	}
	for _, i := range m.Perm(len(fields)) {
		l := m.uniform(fields[i].n, fields[i].basic, m.IntN(2))
		at += m.gap()
		low, high := l.low, l.high
		disps[i] = at - low
		types[i], blocks[i] = l.Type, block{disps[i], 1, l}
		at += high - low
	}
	t, err := datatype.Struct(ones, disps, types)
	l := layoutOf(t, err, blocks)
	low, high := l.low, l.high
	return l.resized(low, high-low+m.gap()) // bounds set in one field say nothing of the others
}
