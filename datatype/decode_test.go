package datatype

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/mpierr"
)

func TestEncodingIsSmall(t *testing.T) {
	ok := made(t)
	for _, c := range []struct {
		typ   *Type
		bytes int
	}{
		{Int64, 7},
		{ok(Vector(1_000_000, 1, 3, Float64)), 10},
		{ok(Contiguous(1_000_000, ok(Vector(1000, 2, 3, Int32)))), 16},
		{ok(IndexedBlock(1, []int{0, 1, 3, 7, 12}, Int32)), 18},
	} {
		b, err := Encode(c.typ)
		if err != nil || len(b) > c.bytes {
			t.Errorf("%s takes %d bytes (%v), more than %d: % x", c.typ, len(b), err, c.bytes, b)
		}
	}
	disps := make([]int, 40_000)
	for i := range disps {
		disps[i] = i*2 + i%7
	}
	if _, err := Encode(ok(IndexedBlock(1, disps[:20_000], Int8))); err != nil {
		t.Error(err)
	}
	if _, err := Encode(ok(IndexedBlock(1, disps, Int8))); mpierr.ClassOf(err) != mpierr.Size {
		t.Errorf("40000 irregular blocks: %v", err)
	}
	raw, err := Vector(2, 1, 3, Int8)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Encode(raw); mpierr.ClassOf(err) != mpierr.Type {
		t.Errorf("not committed: %v", err)
	}
}

// TestEncodingIsPinned holds what other ranks rely on.
func TestEncodingIsPinned(t *testing.T) {
	ok := made(t)
	for _, c := range []struct {
		typ  *Type
		want []byte
	}{
		{Int32, []byte{1, 2, 0, 1, 3, 1, 0}},
		{ok(Vector(3, 1, -2, Int16)), []byte{1, 2, 0, 1, 2, 1, 2, 7}},
		{ok(Resized(ok(Hindexed([]int{1, 1, 2}, []int{6, 2, 9}, Int8)), -1, 5)), []byte{1, 3, 1, 10, 12, 3, 1, 1, 1, 1, 0, 7, 4, 14, 1, 1, 2, 0}},
		{ok(Contiguous(2, ok(Struct([]int{1, 1}, []int{0, 8}, []*Type{Int64, Int8})))), []byte{1, 2, 0, 2, 0, 32, 3, 0, 1, 4, 1, 0, 16, 1, 1, 1, 0}},
	} {
		if b, err := Encode(c.typ); err != nil || !bytes.Equal(b, c.want) {
			t.Errorf("%s: % d (%v), want % d", c.typ, b, err, c.want)
		}
	}
}

// varints concatenates numbers and bytes of a hostile encoding.
func varints(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch v := p.(type) {
		case int:
			b = append(b, byte(v))
		case uint64:
			b = binary.AppendUvarint(b, v)
		case int64:
			b = binary.AppendVarint(b, v)
		}
	}
	return b
}

func TestDecodeRefusesWhatIsNoDatatype(t *testing.T) {
	deep := []byte{1, 2, 0}
	for range maxDepth + 1 {
		deep = append(deep, varints(2, uint64(0), int64(100))...)
	}
	deep = append(deep, 1, 1, 1, 0)
	for name, b := range map[string][]byte{
		"nothing":            nil,
		"only a version":     {1},
		"another version":    {2, 2, 0, 1, 3, 1, 0},
		"unknown flag":       {1, 6, 0, 1, 3, 1, 0},
		"cut off":            {1, 2, 0, 1, 3, 1},
		"something after":    {1, 2, 0, 1, 3, 1, 0, 0},
		"unknown node":       {1, 2, 0, 9, 3, 1, 0},
		"same at first":      {1, 2, 0, 4},
		"no datatype":        {1, 2, 0, 1, 0, 1, 0},
		"datatype 15":        {1, 2, 0, 1, 15, 1, 0},
		"datatype 21":        {1, 2, 0, 1, 21, 1, 0},
		"no elements":        {1, 2, 0, 1, 3, 0, 0},
		"too deep":           deep,
		"too many elements":  varints(1, 2, 0, 1, 4, uint64(1<<59), 0),
		"too many blocks":    varints(1, 2, 0, 1, 4, 1, uint64(1<<58), int64(0)),
		"stride too far":     varints(1, 2, 0, 1, 4, 1, uint64(1<<30), int64(1<<40)),
		"stride overflows":   varints(1, 2, 0, 1, 4, 1, uint64(1<<4), int64(1<<62)),
		"displaced too far":  varints(1, 2, int64(1<<60), 1, 4, 1, 0),
		"extent too large":   varints(1, 3, 0, int64(1<<60+1), 0, 1, 4, 1, 0),
		"bounds too large":   varints(1, 3, int64(1<<60), int64(1<<60), 0, 1, 4, 1, 0),
		"natural extent":     varints(1, 2, 0, 3, 0, 1, 4, 1, 0, int64(1<<60), 4),
		"more items than is": varints(1, 2, 0, 3, uint64(1<<50), 1, 4, 1, 0, 0, 4),
		"loop of too much":   varints(1, 2, 0, 2, uint64(1<<59), int64(0), 3, 0, 1, 4, 1, 0, 50, 1, 4, 1, 0),
		"too long":           make([]byte, MaxEncoded+1),
	} {
		if typ, err := Decode(b); mpierr.ClassOf(err) != mpierr.Type {
			t.Errorf("%s: %v, %v", name, typ, err)
		}
	}
}

//fuzz:inputs 30000
func FuzzDecode(f *testing.F) {
	for _, typ := range nested(f) {
		b, err := Encode(typ)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint64(0))
		f.Add(append(b, b...), uint64(3))
	}
	f.Add([]byte{1, 3, 1, 10, 12, 3, 1, 1, 1, 1, 0, 7, 4, 14, 1, 1, 2, 0}, uint64(2))
	f.Add(varints(1, 2, 0, 2, uint64(1<<40), int64(0), 3, 0, 1, 4, 1, 0, 50, 4), uint64(1<<39))
	f.Fuzz(func(t *testing.T, b []byte, seek uint64) {
		typ, err := Decode(b)
		if err != nil {
			return
		}
		checkDecoded(t, typ, seek)
		again, err := Encode(typ)
		if err != nil {
			return // the simplest form can be the longer
		}
		twin, err := Decode(again)
		if err != nil {
			t.Fatalf("% x became % x: %v", b, again, err)
		}
		if third, err := Encode(twin); err != nil || !bytes.Equal(third, again) {
			t.Fatalf("% x became % x and then % x: %v", b, again, third, err)
		}
		if typ.Size() != twin.Size() || typ.Extent() != twin.Extent() || typ.LowerBound() != twin.LowerBound() || !SameSignature(3, typ, 3, twin) {
			t.Fatalf("% x became % x, which is not the same", b, again)
		}
	})
}

// checkDecoded walks over some of a type's memory, which must be inside of its
// bounds and the same in both ways of walking.
func checkDecoded(t *testing.T, typ *Type, seek uint64) {
	for count := range 4 {
		lo, hi, err := typ.Bounds(count)
		if err != nil {
			return
		}
		typ.OverlapsSelf(count)
		var whole, piece Iter
		whole.ResetElements(typ, count)
		piece.Reset(typ, count)
		at := int64(seek % uint64(whole.Size()+1))
		if !whole.SeekPacked(at) {
			whole.SeekPacked(0)
			at = 0
		}
		if !piece.SeekPacked(at) {
			t.Fatalf("no seek to %d of %d", at, piece.Size())
		}
		for range 300 {
			off, n, basic, ok := whole.Next(48)
			if !ok {
				if whole.Remaining() != 0 || piece.Remaining() != 0 {
					t.Fatalf("%d bytes remain", whole.Remaining())
				}
				break
			}
			if off < lo || off+int64(n) > hi || n <= 0 || n%basic.Size() != 0 {
				t.Fatalf("%d bytes of %s at %d, outside of %d to %d", n, basic, off, lo, hi)
			}
			for n > 0 {
				o, m, _, ok := piece.Next(n)
				if !ok || o != off {
					t.Fatalf("bytes at %d, elements at %d", o, off)
				}
				off, n = off+int64(m), n-m
			}
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	ok := made(b)
	irregular := make([]int, 20_000)
	for i := range irregular {
		irregular[i] = 2*i + i%7
	}
	types := append(nested(b), ok(IndexedBlock(1, irregular, Int8)))
	for _, typ := range types {
		wire, err := Encode(typ)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint(len(wire)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(wire); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
