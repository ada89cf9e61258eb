package datatype

import (
	"slices"

	"pgregory.net/rapid"
)

// model is a type the way the standard defines it: a list of basic datatypes and
// displacements, and markers.
type model struct {
	elements []element
	marked   bool
	lb, ub   int // where the markers are
}

type element struct {
	basic Basic
	at    int
}

func (m model) bounds() (lb, ub int) {
	if m.marked || len(m.elements) == 0 {
		return m.lb, m.ub
	}
	align := 1
	lb, ub = m.elements[0].at, m.elements[0].at
	for _, e := range m.elements {
		lb, ub, align = min(lb, e.at), max(ub, e.at+e.basic.Size()), max(align, goAlign(e.basic))
	}
	for (ub-lb)%align != 0 {
		ub++
	}
	return lb, ub
}

func (m model) extent() int {
	lb, ub := m.bounds()
	return ub - lb
}

// add appends a copy of n, displaced.
func (m *model) add(n model, disp int) {
	for _, e := range n.elements {
		m.elements = append(m.elements, element{e.basic, e.at + disp})
	}
	switch {
	case !n.marked:
	case !m.marked:
		m.marked, m.lb, m.ub = true, n.lb+disp, n.ub+disp
	default:
		m.lb, m.ub = min(m.lb, n.lb+disp), max(m.ub, n.ub+disp)
	}
}

func (m *model) block(n model, count, disp int) {
	for i := range count {
		m.add(n, disp+i*n.extent())
	}
}

// entries returns the elements of count entries.
func (m model) entries(count int) []element {
	var all model
	all.block(m, count, 0)
	return all.elements
}

// bytesOf returns the displacement of each byte in packed order.
func bytesOf(elements []element) []int {
	var out []int
	for _, e := range elements {
		for i := range e.basic.Size() {
			out = append(out, e.at+i)
		}
	}
	return out
}

const maxModel = 150 // elements, beyond which a random type is not nested further

type fataler interface {
	Fatalf(format string, args ...any)
}

// drawType makes a random type, committed, and its model.
func drawType(t *rapid.T, depth int) (*Type, model) {
	typ, m := draw(t, depth)
	if err := typ.Commit(); err != nil {
		t.Fatalf("commit: %v", err)
	}
	return typ, m
}

var someBasics = []*Type{Int8, Byte, Int16, Float32, Int32, Float64, Complex64, Complex128, Int16Int32, Float64Int32}

func draw(t *rapid.T, depth int) (*Type, model) {
	if depth == 0 {
		b := rapid.SampledFrom(someBasics).Draw(t, "basic")
		return b, model{elements: []element{{b.Basic(), 0}}}
	}
	if rapid.SampledFrom([]bool{false, false, true}).Draw(t, "is a struct") {
		return drawStruct(t, depth)
	}
	old, m := draw(t, depth-1)
	if len(m.elements) > maxModel {
		return old, m
	}
	small := func(low, high int, label string) int { return rapid.IntRange(low, high).Draw(t, label) }
	some := func(label string) int { return rapid.SampledFrom([]int{2, 3, 4, 2, 3, 4, 5, 1, 0}).Draw(t, label) }
	ints := func(n, low, high int, label string) []int {
		return rapid.SliceOfN(rapid.IntRange(low, high), n, n).Draw(t, label)
	}
	var typ *Type
	var err error
	var out model
	switch rapid.SampledFrom([]int{0, 1, 2, 3, 4, 5, 6, 7, 8}).Draw(t, "constructor") {
	case 0:
		n := some("count")
		typ, err = Contiguous(n, old)
		out.block(m, n, 0)
	case 1:
		n, b, s := some("count"), some("block"), small(-5, 5, "stride")
		typ, err = Vector(n, b, s, old)
		for i := range n {
			out.block(m, b, i*s*m.extent())
		}
	case 2:
		n, b, s := some("count"), some("block"), small(-50, 50, "stride")
		typ, err = Hvector(n, b, s, old)
		for i := range n {
			out.block(m, b, i*s)
		}
	case 3:
		n := some("blocks")
		lens, disps := ints(n, 0, 5, "lengths"), ints(n, -6, 6, "disps")
		typ, err = Indexed(lens, disps, old)
		for i := range n {
			out.block(m, lens[i], disps[i]*m.extent())
		}
	case 4:
		n := some("blocks")
		lens, disps := ints(n, 0, 5, "lengths"), ints(n, -60, 60, "disps")
		typ, err = Hindexed(lens, disps, old)
		for i := range n {
			out.block(m, lens[i], disps[i])
		}
	case 5:
		n, b := some("blocks"), some("length")
		disps := ints(n, -6, 6, "disps")
		typ, err = IndexedBlock(b, disps, old)
		for _, d := range disps {
			out.block(m, b, d*m.extent())
		}
	case 6:
		lb, e := small(-40, 40, "lb"), small(-80, 80, "extent")
		typ, err = Resized(old, lb, e)
		out = model{m.elements, true, lb, lb + e}
	case 7:
		typ, out, err = drawSubarray(t, old, m)
	default:
		typ, out, err = drawDarray(t, old, m)
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	return typ, out
}

func drawStruct(t *rapid.T, depth int) (*Type, model) {
	n := rapid.SampledFrom([]int{2, 3, 1, 4, 2, 3, 10, 0}).Draw(t, "members")
	var lens, disps []int
	var types []*Type
	var out model
	for range n {
		typ, m := draw(t, depth-1)
		length, disp := rapid.SampledFrom([]int{1, 2, 1, 3, 0}).Draw(t, "length"), rapid.IntRange(-40, 40).Draw(t, "disp")
		lens, disps, types = append(lens, length), append(disps, disp), append(types, typ)
		out.block(m, length, disp)
	}
	typ, err := Struct(lens, disps, types)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return typ, out
}

func drawOrder(t *rapid.T) Order {
	return rapid.SampledFrom([]Order{OrderC, OrderFortran}).Draw(t, "order")
}

// pick adds the entries of an array of m whose indices chosen accepts, in
// storage order, and the array's bounds.
func pick(m model, sizes []int, order Order, chosen func(index []int) bool) model {
	var out model
	total := 1
	for _, s := range sizes {
		total *= s
	}
	index := make([]int, len(sizes))
	for i := range total {
		rest := i
		for k := range sizes {
			d := order.dimension(k, len(sizes))
			index[d], rest = rest%sizes[d], rest/sizes[d]
		}
		if chosen(index) {
			out.add(m, i*m.extent())
		}
	}
	out.marked, out.lb, out.ub = true, 0, total*m.extent()
	return out
}

func drawSubarray(t *rapid.T, old *Type, m model) (*Type, model, error) {
	dims := rapid.IntRange(1, 3).Draw(t, "dimensions")
	order := drawOrder(t)
	var sizes, subs, starts []int
	for range dims {
		size := rapid.IntRange(1, 4).Draw(t, "size")
		sub := rapid.IntRange(1, size).Draw(t, "subsize")
		sizes, subs = append(sizes, size), append(subs, sub)
		starts = append(starts, rapid.IntRange(0, size-sub).Draw(t, "start"))
	}
	typ, err := Subarray(sizes, subs, starts, order, old)
	return typ, pick(m, sizes, order, func(index []int) bool {
		for d, i := range index {
			if i < starts[d] || i >= starts[d]+subs[d] {
				return false
			}
		}
		return true
	}), err
}

func drawDarray(t *rapid.T, old *Type, m model) (*Type, model, error) {
	dims := rapid.IntRange(1, 2).Draw(t, "dimensions")
	order := drawOrder(t)
	var sizes, args, procs, blocks []int
	var dists []Distribution
	ranks := 1
	for range dims {
		size, p := rapid.IntRange(1, 7).Draw(t, "size"), rapid.IntRange(1, 3).Draw(t, "processes")
		d := rapid.SampledFrom([]Distribution{DistributeBlock, DistributeCyclic, DistributeNone}).Draw(t, "distribution")
		arg := rapid.SampledFrom([]int{DefaultArg, 1, 2, 3, 7}).Draw(t, "argument")
		block := arg
		switch {
		case d == DistributeNone:
			arg, p, block = DefaultArg, 1, size
		case d == DistributeBlock && (arg == DefaultArg || arg*p < size):
			arg, block = DefaultArg, (size+p-1)/p
		case arg == DefaultArg:
			block = 1
		}
		sizes, args, procs, blocks, dists = append(sizes, size), append(args, arg), append(procs, p), append(blocks, block), append(dists, d)
		ranks *= p
	}
	rank := rapid.IntRange(0, ranks-1).Draw(t, "rank")
	coords := slices.Clone(procs)
	rest := rank
	for i := dims - 1; i >= 0; i-- {
		coords[i], rest = rest%procs[i], rest/procs[i]
	}
	typ, err := DistributedArray(ranks, rank, sizes, dists, args, procs, order, old)
	return typ, pick(m, sizes, order, func(index []int) bool {
		for d, i := range index {
			if i/blocks[d]%procs[d] != coords[d] {
				return false
			}
		}
		return true
	}), err
}
