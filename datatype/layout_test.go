package datatype

import (
	"math"
	"testing"

	"github.com/xdprma/xdprma/mpierr"
)

// TestRegularLayoutsAreSmall looks into what layouts are compiled to.
func TestRegularLayoutsAreSmall(t *testing.T) {
	ok := made(t)
	const million = 1_000_000
	progression := make([]int, 1000)
	for i := range progression {
		progression[i] = 5 * i
	}
	pair := ok(Struct([]int{1, 1}, []int{0, 8}, []*Type{Int64, Float64}))
	for _, c := range []struct {
		name   string
		typ    *Type
		kind   kind
		depth  uint8
		blocks int64 // of the outermost node
	}{
		{"vector", ok(Vector(million, 1, 2, Int64)), kindRun, 0, million},
		{"vector without gaps", ok(Vector(million, 2, 2, Int64)), kindRun, 0, 1},
		{"contiguous of contiguous", ok(Contiguous(million, ok(Contiguous(3, Int64)))), kindRun, 0, 1},
		{"vectors in a row", ok(Contiguous(1000, ok(Resized(ok(Vector(10, 1, 2, Int64)), 0, 160)))), kindRun, 0, 10_000},
		{"matrix of gaps", ok(Hvector(1000, 1, 1000, ok(Vector(10, 1, 2, Int64)))), kindLoop, 1, 1000},
		{"progression", ok(IndexedBlock(1, progression, Int16)), kindRun, 0, 1000},
		{"neighbours", ok(Indexed([]int{1, 2, 3}, []int{4, 5, 7}, Int16)), kindRun, 0, 1},
		{"whole subarray", ok(Subarray([]int{9, 8, 7}, []int{9, 8, 7}, []int{0, 0, 0}, OrderC, Int16)), kindRun, 0, 1},
		{"slab", ok(Subarray([]int{9, 8, 7}, []int{3, 8, 7}, []int{2, 0, 0}, OrderC, Int16)), kindRun, 0, 1},
		{"struct without gaps", ok(Contiguous(million, pair)), kindLoop, 2, million},
		{"irregular", ok(IndexedBlock(1, []int{0, 2, 5}, Int16)), kindList, 1, 0},
	} {
		n := c.typ.layout.node
		if n.kind != c.kind || n.depth != c.depth || n.count != c.blocks {
			t.Errorf("%s: kind %d, depth %d, %d blocks", c.name, n.kind, n.depth, n.count)
		}
	}
	joined := ok(Contiguous(million, pair)).compiled.Load().bytes.node
	if !joined.single() || joined.length != 16*million {
		t.Errorf("bytes of structs without gaps are not joined: %+v", joined)
	}
	if !ok(Contiguous(3, pair)).Contiguous() || ok(Resized(pair, 0, 24)).Contiguous() || !ok(Hindexed([]int{2}, []int{7}, Int8)).Contiguous() {
		t.Error("contiguous is wrong")
	}
}

func TestBoundsRefuseCountsThatOverflow(t *testing.T) {
	ok := made(t)
	v := ok(Vector(2, 1, -3, Int64))
	for _, c := range []struct {
		typ    *Type
		count  int
		lo, hi int64
		class  mpierr.Class
	}{
		{v, 0, 0, 0, 0}, {v, 1, -24, 8, 0}, {v, 3, -24, 72, 0}, {v, -1, 0, 0, mpierr.Count}, {v, math.MaxInt, 0, 0, mpierr.Count},
		{v, 1 << 55, -24, 1<<60 - 24, 0}, {v, 1<<55 + 1, 0, 0, mpierr.Count},
		{ok(Resized(Int64, 0, 0)), 1 << 57, 0, 8, 0}, {ok(Resized(Int64, 0, 0)), 1<<57 + 1, 0, 0, mpierr.Count},
		{ok(Resized(Int64, 0, -16)), 3, -32, 8, 0}, {ok(Contiguous(0, Int8)), math.MaxInt, 0, 0, 0},
	} {
		lo, hi, err := c.typ.Bounds(c.count)
		if lo != c.lo || hi != c.hi || mpierr.ClassOf(err) != c.class {
			t.Errorf("%d of %s: %d to %d, %v", c.count, c.typ, lo, hi, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("an iterator takes a count that is too large")
		}
	}()
	new(Iter).Reset(v, math.MaxInt)
}

func TestSignaturesOfLargeCounts(t *testing.T) {
	ok := made(t)
	mixed := ok(Struct([]int{1, 2}, []int{0, 8}, []*Type{Int64, Float32}))
	apart := ok(Struct([]int{1, 1, 1}, []int{40, 0, 20}, []*Type{Int64, Float32, Float32}))
	swapped := ok(Struct([]int{2, 1}, []int{0, 8}, []*Type{Float32, Int64}))
	const n = 1 << 40
	for _, c := range []struct {
		a    int
		x    *Type
		b    int
		y    *Type
		want bool
	}{
		{n, mixed, n, apart, true}, {n, mixed, n, swapped, false}, {n, mixed, 1, ok(Contiguous(n, apart)), true},
		{n, mixed, n / 2, ok(Contiguous(2, mixed)), true}, {n, mixed, n - 1, apart, false},
		{6, Int64, 2, ok(Contiguous(3, Int64)), true}, {8, Byte, 1, Int64, false}, {8, Byte, 8, Uint8, false}, {2, Int64, 2, Uint64, false},
		{0, mixed, 0, Int8, true}, {-1, Int8, -1, Int8, false}, {1, Float64Int32, 2, Int64, false},
		{3, ok(Contiguous(0, mixed)), 7, ok(Contiguous(0, Int8)), true},
	} {
		if SameSignature(c.a, c.x, c.b, c.y) != c.want || SameSignature(c.b, c.y, c.a, c.x) != c.want {
			t.Errorf("%d of %s and %d of %s: want %v", c.a, c.x, c.b, c.y, c.want)
		}
	}
}

func TestOverlapIsFoundInAnyLayout(t *testing.T) {
	ok := made(t)
	for _, c := range []struct {
		typ   *Type
		count int
		want  bool
	}{
		{Int64, 1 << 40, false},
		{ok(Resized(Int64, 0, 7)), 2, true},
		{ok(Resized(Int64, 0, 7)), 1, false},
		{ok(Resized(Int64, 0, -8)), 1 << 30, false},
		{ok(Vector(1<<30, 1, 2, Int64)), 2, false},
		{ok(Resized(ok(Vector(3, 1, 2, Int64)), 0, 8)), 2, false}, // one in the gaps of the other
		{ok(Resized(ok(Vector(3, 1, 2, Int64)), 0, 8)), 3, true},
		{ok(Vector(1<<30, 2, 1, Int64)), 1, true},
		{ok(IndexedBlock(2, []int{7, 0, 3}, Int8)), 1, false},
		{ok(IndexedBlock(2, []int{7, 0, 6}, Int8)), 1, true},
	} {
		if got := c.typ.OverlapsSelf(c.count); got != c.want {
			t.Errorf("%d of %s: %v", c.count, c.typ, got)
		}
	}
}
