package datatype

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

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

// reference computes op in plain Go on the bytes of one element.
func reference(op Op, b Basic, x, y []byte) []byte {
	switch b {
	case BasicInt8:
		return refInt[int8](op, x, y)
	case BasicInt16:
		return refInt[int16](op, x, y)
	case BasicInt32:
		return refInt[int32](op, x, y)
	case BasicInt64:
		return refInt[int64](op, x, y)
	case BasicUint8, BasicByte, BasicBool:
		return refInt[uint8](op, x, y)
	case BasicUint16:
		return refInt[uint16](op, x, y)
	case BasicUint32:
		return refInt[uint32](op, x, y)
	case BasicUint64:
		return refInt[uint64](op, x, y)
	case BasicFloat32:
		return refFloat[float32](op, x, y)
	case BasicFloat64:
		return refFloat[float64](op, x, y)
	case BasicComplex64:
		return refComplex[complex64](op, x, y)
	case BasicFloat32Int32:
		return refPair[float32](op, x, y)
	case BasicFloat64Int32:
		return refPair[float64](op, x, y)
	case BasicInt64Int32:
		return refPair[int64](op, x, y)
	case BasicInt32Int32:
		return refPair[int32](op, x, y)
	case BasicInt16Int32:
		return refPair[int16](op, x, y)
	default:
		return refComplex[complex128](op, x, y)
	}
}

func decode[T any](b []byte) (v T) {
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v)), b)
	return v
}

func encode[T any](v T) []byte {
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v))...)
}

func refInt[T integer](op Op, xb, yb []byte) []byte {
	x, y := decode[T](xb), decode[T](yb)
	logical := func(v bool) T {
		if v {
			return 1
		}
		return 0
	}
	return encode(map[Op]T{Sum: x + y, Prod: x * y, Min: min(x, y), Max: max(x, y), LAnd: logical(x != 0 && y != 0),
		LOr: logical(x != 0 || y != 0), LXor: logical((x == 0) != (y == 0)), BAnd: x & y, BOr: x | y, BXor: x ^ y,
		Replace: y, NoOp: x}[op])
}

func refFloat[T float32 | float64](op Op, xb, yb []byte) []byte {
	x, y := decode[T](xb), decode[T](yb)
	if nan := x + y; (op == Min || op == Max) && (x != x || y != y) {
		return encode(nan) // math.Min and math.Max prefer an infinity to NaN
	}
	switch op {
	case Sum:
		return encode(x + y)
	case Prod:
		return encode(x * y)
	case Min:
		return encode(T(math.Min(float64(x), float64(y))))
	case Max:
		return encode(T(math.Max(float64(x), float64(y))))
	case Replace:
		return yb
	default:
		return xb
	}
}

func refComplex[T complex64 | complex128](op Op, xb, yb []byte) []byte {
	switch x, y := decode[T](xb), decode[T](yb); op {
	case Sum:
		return encode(x + y)
	case Prod:
		return encode(x * y)
	case Replace:
		return yb
	default:
		return xb
	}
}

// refPair ranks the pairs: NaN first, then by value, then by index.
func refPair[V PairValue](op Op, xb, yb []byte) []byte {
	x, y := decode[Pair[V]](xb), decode[Pair[V]](yb)
	order := cmp.Compare(x.Value, y.Value) // NaN is the smallest
	if op == MaxLoc && !nan(x.Value) && !nan(y.Value) {
		order = -order
	}
	if order == 0 {
		order = cmp.Compare(x.Index, y.Index)
	}
	if op == Replace || op != NoOp && order > 0 {
		return yb
	}
	return xb
}

// same compares elements by bits, and NaN components as equal.
func same(b Basic, x, y []byte) bool {
	half := 0
	switch b {
	case BasicFloat32, BasicComplex64:
		half = 4
	case BasicFloat64, BasicComplex128:
		half = 8
	default:
		return string(x) == string(y)
	}
	for i := 0; i < len(x); i += half {
		if string(x[i:i+half]) != string(y[i:i+half]) && !(isNaN(x[i:i+half]) && isNaN(y[i:i+half])) {
			return false
		}
	}
	return true
}

func isNaN(b []byte) bool {
	if len(b) == 4 {
		return math.IsNaN(float64(decode[float32](b)))
	}
	return math.IsNaN(decode[float64](b))
}

// fill writes random elements, small and special values often among them.
func fill(r *rand.Rand, b Basic, mem []byte) {
	special := []float64{0, math.Copysign(0, -1), 1, -1, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64}
	for i := range mem {
		mem[i] = byte(r.Uint32())
	}
	for i := 0; i+8 <= len(mem); i += 8 {
		switch v := special[r.IntN(len(special))]; {
		case r.IntN(3) == 0:
		case b == BasicFloat64 || b == BasicComplex128 || b == BasicFloat64Int32 && i%16 == 0:
			binary.LittleEndian.PutUint64(mem[i:], math.Float64bits(v))
		case b == BasicFloat32 || b == BasicComplex64 || b == BasicFloat32Int32:
			binary.LittleEndian.PutUint32(mem[i:], math.Float32bits(float32(v)))
		case r.IntN(2) == 0:
			binary.LittleEndian.PutUint64(mem[i:], 0)
		}
	}
	if b == BasicBool {
		for i := range mem {
			mem[i] &= 1
		}
	}
}

// aligned returns n bytes that start at a multiple of 8.
func aligned(n int) []byte {
	words := make([]uint64, n/8+1)
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), n)
}

func eachPair(f func(op Op, b Basic)) {
	for b := range Basic(basicCount) {
		for op := range Op(opCount) {
			if op.Check(b) == mpierr.Success {
				f(op, b)
			}
		}
	}
}

func TestKernelsAgainstPlainGo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	eachPair(func(op Op, b Basic) {
		size := b.Size()
		for range 60 {
			n := size * r.IntN(40)
			mem := aligned(n + 64)
			fill(r, b, mem)
			before := append([]byte(nil), mem...)
			at := r.IntN(4) * max(size, 1) &^ (b.Align() - 1)
			operand := make([]byte, n+3)[3:]
			fill(r, b, operand)
			result := make([]byte, n+1)[1:]

			if r.IntN(2) == 0 {
				Accumulate(op, b, mem[at:at+n], operand)
				copy(result, before[at:])
			} else {
				GetAccumulate(op, b, mem[at:at+n], operand, result)
			}
			if string(result) != string(before[at:at+n]) {
				t.Fatalf("%s of %s: old values wrong", op, b)
			}
			for i := 0; i < n; i += size {
				want := reference(op, b, before[at+i:at+i+size], operand[i:i+size])
				if got := mem[at+i : at+i+size]; !same(b, got, want) {
					t.Fatalf("%s of %s: % x with % x gives % x, want % x", op, b, before[at+i:at+i+size], operand[i:i+size], got, want)
				}
			}
			if string(mem[:at]) != string(before[:at]) || string(mem[at+n:]) != string(before[at+n:]) {
				t.Fatalf("%s of %s disturbs its neighbours", op, b)
			}
		}
	})
}

func TestMinMaxOfZeroAndNaN(t *testing.T) {
	neg := math.Copysign(0, -1)
	for _, c := range []struct {
		op         Op
		x, y, want float64
	}{
		{Min, 0, neg, neg}, {Min, neg, 0, neg}, {Max, neg, 0, 0}, {Max, 0, neg, 0},
		{Min, 1, math.NaN(), math.NaN()}, {Max, math.NaN(), 1, math.NaN()},
	} {
		mem := aligned(8)
		copy(mem, encode(c.x))
		Accumulate(c.op, BasicFloat64, mem, encode(c.y))
		if !same(BasicFloat64, mem, encode(c.want)) {
			t.Errorf("%s of %v and %v is %v, want %v", c.op, c.x, c.y, decode[float64](mem), c.want)
		}
	}
}

func TestNoOpIgnoresOperand(t *testing.T) {
	for b := Basic(1); b < basicCount; b++ {
		if !b.Valid() {
			continue
		}
		mem := aligned(32)
		fill(rand.New(rand.NewPCG(3, uint64(b))), b, mem)
		result := make([]byte, 32)
		GetAccumulate(NoOp, b, mem, nil, result)
		if !same(b, result, mem) {
			t.Errorf("no_op of %s read % x from % x", b, result, mem)
		}
	}
}

func TestCompareAndSwapGivesTheOldValue(t *testing.T) {
	for b := Basic(1); b < basicCount; b++ {
		if !b.Comparable() {
			continue
		}
		size := b.Size()
		mem := aligned(24)
		fill(rand.New(rand.NewPCG(4, uint64(b))), b, mem)
		mem[8] = 1
		before := string(mem)
		other, swap, result := make([]byte, size+1)[1:], make([]byte, size), make([]byte, size)
		swap[0] = 77
		CompareAndSwap(b, mem[8:8+size], other, swap, result)
		if string(mem) != before || string(result) != before[8:8+size] {
			t.Errorf("%s: swapped although different, or old value % x wrong", b, result)
		}
		CompareAndSwap(b, mem[8:8+size], []byte(before[8:8+size]), swap, result)
		if want := before[:8] + string(swap) + before[8+size:]; string(mem) != want || string(result) != before[8:8+size] {
			t.Errorf("%s: got % x, want % x", b, mem, want)
		}
	}
}

func TestCallersMistakesPanic(t *testing.T) {
	mem := aligned(32)
	for name, f := range map[string]func(){
		"undefined operator": func() { Accumulate(BAnd, BasicFloat64, mem[:8], mem[8:16]) },
		"invalid operator":   func() { Accumulate(opCount, BasicInt64, mem[:8], mem[8:16]) },
		"invalid type":       func() { Accumulate(Sum, 0, mem[:8], mem[8:16]) },
		"misaligned":         func() { Accumulate(Sum, BasicInt32, mem[2:6], mem[8:12]) },
		"half an element":    func() { Accumulate(Sum, BasicInt32, mem[:6], mem[8:14]) },
		"short operand":      func() { Accumulate(Sum, BasicInt32, mem[:8], mem[8:12]) },
		"short result":       func() { GetAccumulate(Sum, BasicInt32, mem[:8], mem[8:16], mem[16:20]) },
		"swap of floats":     func() { CompareAndSwap(BasicFloat64, mem[:8], mem[8:16], mem[8:16], mem[16:24]) },
		"swap of two":        func() { CompareAndSwap(BasicInt32, mem[:8], mem[8:16], mem[8:16], mem[16:24]) },
		"copy in too long":   func() { CopyIn(mem[:7:7], mem[8:16]) },
		"copy out too long":  func() { CopyOut(mem[8:16], mem[:7:7]) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestKernelsDoNotAllocate(t *testing.T) {
	mem, operand, result := aligned(64), make([]byte, 64), make([]byte, 64)
	eachPair(func(op Op, b Basic) {
		n := testing.AllocsPerRun(20, func() {
			Accumulate(op, b, mem, operand)
			GetAccumulate(op, b, mem, operand, result)
			if b.Comparable() {
				s := b.Size()
				CompareAndSwap(b, mem[:s], operand[:s], operand[:s], result[:s])
			}
			CopyIn(mem, operand)
			CopyOut(result, mem)
		})
		if n != 0 {
			t.Errorf("%s of %s: %v allocations", op, b, n)
		}
	})
}

//fuzz:inputs 35000
func FuzzKernels(f *testing.F) {
	f.Add(uint8(1), uint8(4), []byte{1, 2, 3, 4, 5, 6, 7, 8}, []byte{8, 7, 6, 5, 4, 3, 2, 1})
	f.Add(uint8(3), uint8(9), []byte{0, 0, 0xc0, 0x7f}, []byte{0, 0, 0, 0x80})
	f.Add(uint8(7), uint8(11), []byte{1, 0}, []byte{1, 1})
	f.Fuzz(func(t *testing.T, opCode, basicCode uint8, x, y []byte) {
		op, b := Op(opCode), Basic(basicCode)
		if op.Check(b) != mpierr.Success {
			return
		}
		n := min(len(x), len(y)) / b.Size() * b.Size()
		mem, result := aligned(n), make([]byte, n)
		copy(mem, x)
		GetAccumulate(op, b, mem, y[:n], result)
		for i := 0; i < n; i += b.Size() {
			end := i + b.Size()
			if want := reference(op, b, x[i:end], y[i:end]); !same(b, mem[i:end], want) || string(result[i:end]) != string(x[i:end]) {
				t.Fatalf("%s of %s: % x with % x gives % x, want % x, old % x", op, b, x[i:end], y[i:end], mem[i:end], want, result[i:end])
			}
		}
	})
}

func BenchmarkAccumulate(b *testing.B) {
	mem, operand, result := aligned(8), make([]byte, 8), make([]byte, 8)
	operand[0] = 1
	for op := Op(1); op < opCount; op++ {
		for _, typ := range []Basic{BasicInt64, BasicFloat64} {
			if op.Check(typ) == mpierr.Success {
				b.Run(fmt.Sprint(op, "/", typ), func(b *testing.B) {
					for b.Loop() {
						GetAccumulate(op, typ, mem, operand, result)
					}
				})
			}
		}
	}
	for _, typ := range []Basic{BasicInt8, BasicInt16, BasicInt32, BasicComplex64, BasicComplex128} {
		mem, operand, result := aligned(16)[:typ.Size()], make([]byte, typ.Size()), make([]byte, typ.Size())
		operand[0] = 1
		b.Run(fmt.Sprint("sum/", typ), func(b *testing.B) {
			for b.Loop() {
				GetAccumulate(Sum, typ, mem, operand, result)
			}
		})
	}
}
