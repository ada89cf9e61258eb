package datatype

import (
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/xdprma/xdprma/mpierr"
)

type point struct {
	X, Y float32
	tag  uint8
}

type particle struct {
	ID    int
	Flag  bool
	where [2]point
	_     [5]byte
	Best  Pair[float64]
	Phase complex64
	none  struct{}
	Small int16
}

func TestFromGoFollowsTheLayoutOfAStruct(t *testing.T) {
	typ, err := FromGo[particle]()
	if err != nil {
		t.Fatal(err)
	}
	if want := 8 + 1 + 2*9 + 16 + 8 + 2; typ.Size() != want || typ.Extent() != int(unsafe.Sizeof(particle{})) || typ.LowerBound() != 0 {
		t.Errorf("size %d, want %d; lower bound %d, extent %d", typ.Size(), want, typ.LowerBound(), typ.Extent())
	}
	var got []Basic
	for b := range typ.Signature() {
		got = append(got, b)
	}
	want := []Basic{BasicInt64, BasicBool, BasicFloat32, BasicUint8, BasicFloat32, BasicUint8, BasicFloat64Int32, BasicComplex64, BasicInt16}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("signature %v, want %v", got, want)
	}
	in := []particle{
		{ID: -1, Flag: true, where: [2]point{{1, 2, 3}, {4, 5, 6}}, Best: Pair[float64]{7, 8}, Phase: 9i, Small: 10},
		{ID: 11, where: [2]point{{Y: 12}, {tag: 13}}, Small: -14},
	}
	var out [2]particle
	const size = 2 * unsafe.Sizeof(particle{})
	buf := make([]byte, 2*typ.Size())
	n, err := Pack(buf, unsafe.Slice((*byte)(unsafe.Pointer(&in[0])), size), 0, typ, 2, 0)
	if err != nil || n != len(buf) {
		t.Fatal(n, err)
	}
	if n, err = Unpack(unsafe.Slice((*byte)(unsafe.Pointer(&out[0])), size), 0, typ, 2, 0, buf); err != nil || n != len(buf) {
		t.Fatal(n, err)
	}
	if out[0] != in[0] || out[1] != in[1] {
		t.Errorf("got %v, want %v", out, in)
	}
}

func TestFromGoTakesWhatHoldsNoPointers(t *testing.T) {
	check := func(typ *Type, err error, size, extent int) {
		t.Helper()
		if err != nil || typ.Size() != size || typ.Extent() != extent || !typ.Committed() {
			t.Errorf("%v: %v", typ, err)
		}
	}
	typ, err := FromGo[int]()
	check(typ, err, 8, 8)
	typ, err = FromGo[[1 << 40]int16]()
	check(typ, err, 1<<41, 1<<41)
	typ, err = FromGo[struct{}]()
	check(typ, err, 0, 0)
	typ, err = FromGo[[3]struct {
		A uint64
		B struct{}
	}]()
	check(typ, err, 24, 48)
	typ, err = FromGo[struct{ A [0]int64 }]()
	check(typ, err, 0, 0)
	typ, err = FromGo[struct {
		A [0]int64
		B bool
	}]()
	check(typ, err, 1, 8)
	typ, err = FromGo[Pair[int16]]()
	check(typ, err, 8, 8)
}

func TestFromGoRefusesPointers(t *testing.T) {
	type inner struct {
		OK   int8
		Deep [3]struct{ Names []string }
	}
	for _, c := range []struct {
		g    reflect.Type
		want string
	}{
		{reflect.TypeFor[inner](), "datatype.inner.Deep[].Names: no datatype holds a slice"},
		{reflect.TypeFor[struct{ P *int }](), ".P: no datatype holds a ptr"},
		{reflect.TypeFor[struct{ m map[int]int }](), ".m: no datatype holds a map"},
		{reflect.TypeFor[struct{ U uintptr }](), ".U: no datatype holds a uintptr"},
		{reflect.TypeFor[string](), "string: no datatype holds a string"},
		{reflect.TypeFor[any](), "no datatype holds a interface"},
		{nil, "no Go type"},
	} {
		if _, err := FromStruct(c.g); mpierr.ClassOf(err) != mpierr.Type || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.g, err)
		}
	}
}
