package datatype

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// walk returns the bytes and datatypes that the rest of an iterator yields, byte
// by byte.
func walk(t fataler, it *Iter, limit func() int) (at []int, basics []Basic) {
	for it.Remaining() > 0 {
		max := limit()
		pos := it.Packed()
		off, n, b, ok := it.Next(max)
		if !ok {
			if max >= 16 {
				t.Fatalf("no piece with %d bytes to come", it.Remaining())
			}
			continue
		}
		if n <= 0 || n > max || it.Packed() != pos+int64(n) {
			t.Fatalf("a piece of %d bytes at %d, limit %d", n, pos, max)
		}
		if it.whole && n%b.Size() != 0 {
			t.Fatalf("a piece of %d bytes of %s", n, b)
		}
		for i := range n {
			at, basics = append(at, int(off)+i), append(basics, b)
		}
	}
	if _, _, _, ok := it.Next(100); ok {
		t.Fatalf("a piece after the end")
	}
	return at, basics
}

// TestRandomTypesAgreeWithTheirModels compares types with their models in every respect.
func TestRandomTypesAgreeWithTheirModels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ, m := drawType(t, rapid.SampledFrom([]int{1, 2, 3, 4, 5, 0}).Draw(t, "depth"))
		checkShape(t, typ, m)
		count := rapid.IntRange(0, 3).Draw(t, "count")
		elements := m.entries(count)
		checkWalk(t, typ, count, elements)
		checkPack(t, typ, count, elements)
		checkOverlap(t, typ, count, elements)
		checkEncoding(t, typ, count)
		checkSignature(t, typ, m)
	})
}

func checkShape(t *rapid.T, typ *Type, m model) {
	lb, ub := m.bounds()
	where := bytesOf(m.elements)
	lo, te := 0, 0
	if len(where) > 0 {
		lo = slices.Min(where)
		te = slices.Max(where) + 1 - lo
	}
	gotLo, gotTe := typ.TrueExtent()
	got := [5]int{typ.Size(), typ.LowerBound(), typ.Extent(), gotLo, gotTe}
	if want := [5]int{len(where), lb, ub - lb, lo, te}; got != want {
		t.Fatalf("%s: size, lb, extent, true lb, true extent are %v, want %v", typ, got, want)
	}
	basic := Basic(0)
	if len(m.elements) > 0 {
		basic = m.elements[0].basic
		for _, e := range m.elements {
			if e.basic != basic {
				basic = 0
				break
			}
		}
	}
	if b, ok := typ.UniformBasic(); b != basic || ok != (basic != 0) || typ.Basic() != basic {
		t.Fatalf("%s: basic %s, want %s", typ, b, basic)
	}
	gapless := true
	two := bytesOf(m.entries(2))
	for i := range two {
		gapless = gapless && two[i] == two[0]+i
	}
	if typ.Contiguous() != gapless && (gapless || typ.Size() > 0) {
		t.Fatalf("%s: contiguous is %v, want %v", typ, typ.Contiguous(), gapless)
	}
}

func checkWalk(t *rapid.T, typ *Type, count int, elements []element) {
	where := bytesOf(elements)
	var basics []Basic
	for _, e := range elements {
		for range e.basic.Size() {
			basics = append(basics, e.basic)
		}
	}
	lo, hi, err := typ.Bounds(count)
	if err != nil || len(where) > 0 && (int(lo) != slices.Min(where) || int(hi) != slices.Max(where)+1) || len(where) == 0 && lo != hi {
		t.Fatalf("%s: bounds of %d are %d and %d, %v", typ, count, lo, hi, err)
	}
	limits := rapid.SampledFrom([]int{1, 3, 8, 15, 16, 40, 1 << 40})
	limit := func() int { return limits.Draw(t, "limit") }
	// A seek starts anywhere; one over elements, at the start of any.
	var it Iter
	it.Reset(typ, count)
	for _, from := range []int{0, rapid.IntRange(0, len(where)).Draw(t, "seek"), len(where)} {
		if it.Size() != int64(len(where)) || !it.SeekPacked(int64(from)) {
			t.Fatalf("%s: no seek to %d of %d", typ, from, it.Size())
		}
		if got, _ := walk(t, &it, limit); !slices.Equal(got, where[from:]) {
			t.Fatalf("%s: from %d of %d entries come bytes %v, want %v", typ, from, count, got, where[from:])
		}
	}
	it.ResetElements(typ, count)
	if got, b := walk(t, &it, limit); !slices.Equal(got, where) || !slices.Equal(b, basics) {
		t.Fatalf("%s: the elements of %d entries are %v of %v, want %v of %v", typ, count, got, b, where, basics)
	}
	starts := map[int]bool{0: true}
	n := 0
	for _, e := range elements {
		n += e.basic.Size()
		starts[n] = true
	}
	from := rapid.IntRange(-1, len(where)+1).Draw(t, "seek to element")
	if got := it.SeekPacked(int64(from)); got != starts[from] {
		t.Fatalf("%s: seek to %d of %d is %v", typ, from, len(where), got)
	} else if !got {
		from = len(where)
	}
	if got, b := walk(t, &it, limit); !slices.Equal(got, where[from:]) || !slices.Equal(b, basics[from:]) {
		t.Fatalf("%s: the elements from %d of %d entries are %v of %v", typ, from, count, got, b)
	}
}

func checkPack(t *rapid.T, typ *Type, count int, elements []element) {
	where := bytesOf(elements)
	lo, hi, _ := typ.Bounds(count)
	mem := make([]byte, hi-lo)
	for i := range mem {
		mem[i] = byte(i*7 + 1)
	}
	want := make([]byte, len(where))
	for i, at := range where {
		want[i] = mem[at-int(lo)]
	}
	from := rapid.IntRange(0, len(where)).Draw(t, "pack from")
	dst := make([]byte, rapid.IntRange(0, len(where)+3).Draw(t, "pack length"))
	n, err := Pack(dst, mem, -lo, typ, count, int64(from))
	if err != nil || n != min(len(dst), len(where)-from) || !bytes.Equal(dst[:n], want[from:from+n]) {
		t.Fatalf("%s: packed %d bytes from %d: % x (%v), want % x", typ, n, from, dst[:n], err, want[from:])
	}
	after := bytes.Clone(mem)
	src := make([]byte, n)
	for i := range src {
		src[i] = byte(200 - i)
		after[where[from+i]-int(lo)] = src[i]
	}
	if m, err := Unpack(mem, -lo, typ, count, int64(from), src); err != nil || m != n || !bytes.Equal(mem, after) {
		t.Fatalf("%s: unpacked %d of %d bytes from %d: % x (%v), want % x", typ, m, n, from, mem, err, after)
	}
	if len(mem) > 0 {
		if _, err := Pack(dst, mem[1:], -lo, typ, count, 0); err == nil {
			t.Fatalf("%s: packed out of memory that is too short", typ)
		}
		if _, err := Pack(dst, mem, -lo-1, typ, count, 0); err == nil {
			t.Fatalf("%s: packed from before the memory", typ)
		}
	}
}

func checkOverlap(t *rapid.T, typ *Type, count int, elements []element) {
	seen := map[int]bool{}
	want := false
	for _, at := range bytesOf(elements) {
		want = want || seen[at]
		seen[at] = true
	}
	if got := typ.OverlapsSelf(count); got != want {
		t.Fatalf("%s: overlaps itself is %v, want %v", typ, got, want)
	}
}

func checkEncoding(t *rapid.T, typ *Type, count int) {
	b, err := Encode(typ)
	if err != nil {
		t.Fatalf("%s: %v", typ, err)
	}
	got, err := Decode(b)
	if err != nil {
		t.Fatalf("%s: %v", typ, err)
	}
	again, err := Encode(got)
	if err != nil || !bytes.Equal(b, again) {
		t.Fatalf("%s: encoded again % x (%v), want % x", typ, again, err, b)
	}
	if got.Size() != typ.Size() || got.LowerBound() != typ.LowerBound() || got.Extent() != typ.Extent() || !SameSignature(count, typ, count, got) {
		t.Fatalf("%s: decoded with size %d, lower bound %d, extent %d", typ, got.Size(), got.LowerBound(), got.Extent())
	}
	var x, y Iter
	x.ResetElements(typ, count)
	y.ResetElements(got, count)
	for {
		o1, n1, b1, ok1 := x.Next(1 << 30)
		o2, n2, b2, ok2 := y.Next(1 << 30)
		if o1 != o2 || n1 != n2 || b1 != b2 || ok1 != ok2 {
			t.Fatalf("%s: a piece of %d at %d became %d at %d", typ, n1, o1, n2, o2)
		}
		if !ok1 {
			return
		}
	}
}

func checkSignature(t *rapid.T, typ *Type, m model) {
	var got []Basic
	last := Basic(0)
	for b, n := range typ.Signature() {
		if b == last || n <= 0 {
			t.Fatalf("%s: a run of %d %s after %s", typ, n, b, last)
		}
		got, last = append(got, slices.Repeat([]Basic{b}, int(n))...), b
	}
	want := sequence(m.elements)
	if !slices.Equal(got, want) {
		t.Fatalf("%s: signature %v, want %v", typ, got, want)
	}
	other, o := drawType(t, 2)
	a, b := rapid.IntRange(0, 3).Draw(t, "a"), rapid.IntRange(0, 3).Draw(t, "b")
	same := slices.Equal(slices.Repeat(want, a), slices.Repeat(sequence(o.elements), b))
	if SameSignature(a, typ, b, other) != same {
		t.Fatalf("%d of %s and %d of %s: same signature is not %v", a, typ, b, other, same)
	}
}

func sequence(elements []element) []Basic {
	out := make([]Basic, len(elements))
	for i, e := range elements {
		out[i] = e.basic
	}
	return out
}

// nested returns types with every kind of node, from flat to deep.
func nested(t testing.TB) []*Type {
	ok := made(t)
	type cell struct {
		A int32
		B [3]int16
		C float64
	}
	s := ok(FromGo[cell]())
	return []*Type{
		Int64,
		ok(Vector(100, 1, 2, Int64)),
		ok(Vector(20, 3, 5, s)),
		ok(Indexed([]int{1, 3, 2, 1}, []int{0, 20, 7, 40}, s)),
		ok(Subarray([]int{6, 7, 8}, []int{2, 3, 4}, []int{1, 1, 1}, OrderC, s)),
	}
}

func TestTransfersDoNotAllocate(t *testing.T) {
	mem := make([]byte, 1<<16)
	buf := make([]byte, 1<<14)
	for _, typ := range nested(t) {
		n := testing.AllocsPerRun(20, func() {
			packed, err := Pack(buf, mem, 0, typ, 2, 8)
			if err == nil {
				_, err = Unpack(mem, 0, typ, 2, 8, buf[:packed])
			}
			var it Iter
			it.ResetElements(typ, 2)
			for _, _, _, ok := it.Next(16); ok; _, _, _, ok = it.Next(16) {
				_ = it.Remaining()
			}
			it.SeekPacked(24)
			if _, _, berr := typ.Bounds(2); err != nil || berr != nil || !SameSignature(2, typ, 2, typ) || !typ.Committed() {
				panic("wrong")
			}
			typ.Contiguous()
			typ.UniformBasic()
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", typ, n)
		}
	}
}

// BenchmarkWalk measures a piece of 8 bytes.
func BenchmarkWalk(b *testing.B) {
	ok := made(b)
	irregular := make([]int, 1000)
	for i := range irregular {
		irregular[i] = 3*i + i*i%2
	}
	for _, c := range []struct {
		name string
		typ  *Type
	}{
		{"vector", ok(Vector(1000, 1, 2, Int64))},
		{"indexed", ok(IndexedBlock(1, irregular, Int64))},
		{"subarray", ok(Subarray([]int{10, 20, 30}, []int{5, 10, 20}, []int{0, 0, 0}, OrderFortran, ok(Resized(Int64, 0, 16))))},
		{"struct", ok(Contiguous(500, ok(Struct([]int{1, 1}, []int{0, 16}, []*Type{Int64, Float64}))))},
	} {
		b.Run(c.name, func(b *testing.B) {
			var it Iter
			pieces := 0
			for b.Loop() {
				it.Reset(c.typ, 1)
				for _, _, _, ok := it.Next(1 << 20); ok; _, _, _, ok = it.Next(1 << 20) {
					pieces++
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(pieces), "ns/piece")
		})
		b.Run(fmt.Sprint(c.name, "/pack"), func(b *testing.B) {
			_, hi, _ := c.typ.Bounds(1)
			mem, dst := make([]byte, hi), make([]byte, c.typ.Size())
			b.SetBytes(int64(len(dst)))
			for b.Loop() {
				if _, err := Pack(dst, mem, 0, c.typ, 1, 0); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(c.typ.Size()/8), "ns/piece")
		})
	}
}

func BenchmarkSeek(b *testing.B) {
	for _, typ := range nested(b) {
		b.Run(fmt.Sprint(typ.Size()), func(b *testing.B) {
			var it Iter
			it.Reset(typ, 1000)
			for i := int64(0); b.Loop(); i = (i + 12345) % it.Size() {
				it.SeekPacked(i)
			}
		})
	}
}

// BenchmarkWalkOne measures what a transfer of a single piece costs besides.
func BenchmarkWalkOne(b *testing.B) {
	for b.Loop() {
		var it Iter
		it.Reset(Int64, 1)
		if _, n, _, _ := it.Next(100); n != 8 {
			b.Fatal(n)
		}
	}
}
