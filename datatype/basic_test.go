package datatype

import (
	"errors"
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/mpierr"
)

type celsius float64

func TestGoTypesHaveTheirPredefinedDatatypes(t *testing.T) {
	for _, c := range []struct{ got, want *Type }{
		{Of[int](), Int64}, {Of[int8](), Int8}, {Of[int16](), Int16}, {Of[int32](), Int32}, {Of[int64](), Int64},
		{Of[uint](), Uint64}, {Of[byte](), Uint8}, {Of[uint16](), Uint16}, {Of[uint32](), Uint32}, {Of[uint64](), Uint64},
		{Of[float32](), Float32}, {Of[float64](), Float64}, {Of[celsius](), Float64}, {Of[bool](), Bool},
		{Of[complex64](), Complex64}, {Of[complex128](), Complex128},
	} {
		if c.got != c.want {
			t.Errorf("got %v, want %s", c.got, c.want.Name())
		}
		if c.got.Size() != c.got.Basic().Size() || c.got.Extent() != c.got.Size() {
			t.Errorf("%s: size %d, extent %d", c.got.Name(), c.got.Size(), c.got.Extent())
		}
	}
	if n := testing.AllocsPerRun(100, func() { _ = Of[celsius]() }); n != 0 {
		t.Errorf("Of allocates %v times", n)
	}
}

// TestCodesOnTheWireArePinned pins what other ranks rely on.
func TestCodesOnTheWireArePinned(t *testing.T) {
	names := []string{"invalid", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
		"float32", "float64", "bool", "byte", "complex64", "complex128", "invalid",
		"float32_int32", "float64_int32", "int64_int32", "int32_int32", "int16_int32", "invalid"}
	for i, name := range names {
		if b := Basic(i); b.String() != name || b.Valid() != (name != "invalid") {
			t.Errorf("code %d is %s, valid %v; want %s", i, b, b.Valid(), name)
		}
	}
	ops := []string{"invalid", "sum", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor", "replace", "no_op",
		"minloc", "maxloc", "invalid"}
	for i, name := range ops {
		if o := Op(i); o.String() != name || o.Valid() != (name != "invalid") {
			t.Errorf("code %d is %s, valid %v; want %s", i, o, o.Valid(), name)
		}
	}
	if Basic(255).Valid() || Op(255).Valid() || Basic(255).Size() != 0 {
		t.Error("code 255 is taken for valid")
	}
}

func TestOperatorsTakeTheDatatypesOfTheStandard(t *testing.T) {
	const (
		ints   = "int8 int16 int32 int64 uint8 uint16 uint32 uint64"
		reals  = ints + " float32 float64"
		number = reals + " complex64 complex128"
		pairs  = "float32_int32 float64_int32 int64_int32 int32_int32 int16_int32"
		all    = number + " bool byte " + pairs
	)
	defined := map[Op]string{Sum: number, Prod: number, Min: reals, Max: reals, LAnd: ints + " bool", LOr: ints + " bool",
		LXor: ints + " bool", BAnd: ints + " byte", BOr: ints + " byte", BXor: ints + " byte", Replace: all, NoOp: all, MinLoc: pairs, MaxLoc: pairs}
	for o := range Op(opCount + 1) {
		for b := range Basic(basicCount + 1) {
			want := mpierr.Op
			switch {
			case !b.Valid():
				want = mpierr.Type
			case containsWord(defined[o], b.String()):
				want = mpierr.Success
			}
			if got := o.Check(b); got != want {
				t.Errorf("%s of %s: %v, want %v", o, b, got, want)
			}
			if err := o.Defined(b); mpierr.ClassOf(err) != want || (err == nil) != (want == mpierr.Success) {
				t.Errorf("%s of %s: %v, want %v", o, b, err, want)
			} else if err != nil && !errors.Is(err, want) {
				t.Errorf("%v does not match its class", err)
			}
		}
	}
}

func containsWord(list, word string) bool {
	for len(list) > 0 {
		var w string
		if n, _ := fmt.Sscan(list, &w); n != 1 {
			return false
		}
		if w == word {
			return true
		}
		list = list[min(len(list), len(w)+1):]
	}
	return false
}
