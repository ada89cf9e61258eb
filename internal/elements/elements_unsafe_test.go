package elements

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/words"
	"github.com/xdprma/xdprma/mpierr"
)

// reference computes op in plain Go on the bytes of one element.
func reference(op datatype.Op, b datatype.Basic, x, y []byte) []byte {
	switch b {
	case datatype.BasicInt8:
		return refInt[int8](op, x, y)
	case datatype.BasicInt16:
		return refInt[int16](op, x, y)
	case datatype.BasicInt32:
		return refInt[int32](op, x, y)
	case datatype.BasicInt64:
		return refInt[int64](op, x, y)
	case datatype.BasicUint8, datatype.BasicByte, datatype.BasicBool:
		return refInt[uint8](op, x, y)
	case datatype.BasicUint16:
		return refInt[uint16](op, x, y)
	case datatype.BasicUint32:
		return refInt[uint32](op, x, y)
	case datatype.BasicUint64:
		return refInt[uint64](op, x, y)
	case datatype.BasicFloat32:
		return refFloat[float32](op, x, y)
	case datatype.BasicFloat64:
		return refFloat[float64](op, x, y)
	case datatype.BasicComplex64:
		return refComplex[complex64](op, x, y)
	case datatype.BasicFloat32Int32:
		return refPair[float32](op, x, y)
	case datatype.BasicFloat64Int32:
		return refPair[float64](op, x, y)
	case datatype.BasicInt64Int32:
		return refPair[int64](op, x, y)
	case datatype.BasicInt32Int32:
		return refPair[int32](op, x, y)
	case datatype.BasicInt16Int32:
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

func refInt[T integer](op datatype.Op, xb, yb []byte) []byte {
	x, y := decode[T](xb), decode[T](yb)
	logical := func(v bool) T {
		if v {
			return 1
		}
		return 0
	}
	return encode(map[datatype.Op]T{datatype.Sum: x + y, datatype.Prod: x * y, datatype.Min: min(x, y), datatype.Max: max(x, y), datatype.LAnd: logical(x != 0 && y != 0),
		datatype.LOr: logical(x != 0 || y != 0), datatype.LXor: logical((x == 0) != (y == 0)), datatype.BAnd: x & y, datatype.BOr: x | y, datatype.BXor: x ^ y,
		datatype.Replace: y, datatype.NoOp: x}[op])
}

func refFloat[T float32 | float64](op datatype.Op, xb, yb []byte) []byte {
	x, y := decode[T](xb), decode[T](yb)
	if nan := x + y; (op == datatype.Min || op == datatype.Max) && (x != x || y != y) {
		return encode(nan) // math.Min and math.Max prefer an infinity to NaN
	}
	switch op {
	case datatype.Sum:
		return encode(x + y)
	case datatype.Prod:
		return encode(x * y)
	case datatype.Min:
		return encode(T(math.Min(float64(x), float64(y))))
	case datatype.Max:
		return encode(T(math.Max(float64(x), float64(y))))
	case datatype.Replace:
		return yb
	default:
		return xb
	}
}

func refComplex[T complex64 | complex128](op datatype.Op, xb, yb []byte) []byte {
	switch x, y := decode[T](xb), decode[T](yb); op {
	case datatype.Sum:
		return encode(x + y)
	case datatype.Prod:
		return encode(x * y)
	case datatype.Replace:
		return yb
	default:
		return xb
	}
}

// refPair ranks the pairs: NaN first, then by value, then by index.
func refPair[V datatype.PairValue](op datatype.Op, xb, yb []byte) []byte {
	x, y := decode[datatype.Pair[V]](xb), decode[datatype.Pair[V]](yb)
	order := cmp.Compare(x.Value, y.Value) // NaN is the smallest
	if op == datatype.MaxLoc && !nan(x.Value) && !nan(y.Value) {
		order = -order
	}
	if order == 0 {
		order = cmp.Compare(x.Index, y.Index)
	}
	if op == datatype.Replace || op != datatype.NoOp && order > 0 {
		return yb
	}
	return xb
}

// same compares elements by bits, and NaN components as equal.
func same(b datatype.Basic, x, y []byte) bool {
	half := 0
	switch b {
	case datatype.BasicFloat32, datatype.BasicComplex64:
		half = 4
	case datatype.BasicFloat64, datatype.BasicComplex128:
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
func fill(r *rand.Rand, b datatype.Basic, mem []byte) {
	special := []float64{0, math.Copysign(0, -1), 1, -1, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64}
	for i := range mem {
		mem[i] = byte(r.Uint32())
	}
	for i := 0; i+8 <= len(mem); i += 8 {
		switch v := special[r.IntN(len(special))]; {
		case r.IntN(3) == 0:
		case b == datatype.BasicFloat64 || b == datatype.BasicComplex128 || b == datatype.BasicFloat64Int32 && i%16 == 0:
			binary.LittleEndian.PutUint64(mem[i:], math.Float64bits(v))
		case b == datatype.BasicFloat32 || b == datatype.BasicComplex64 || b == datatype.BasicFloat32Int32:
			binary.LittleEndian.PutUint32(mem[i:], math.Float32bits(float32(v)))
		case r.IntN(2) == 0:
			binary.LittleEndian.PutUint64(mem[i:], 0)
		}
	}
	if b == datatype.BasicBool {
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

func eachPair(f func(op datatype.Op, b datatype.Basic)) {
	for b := range datatype.Basic(basicCount) {
		for op := range datatype.Op(opCount) {
			if op.Check(b) == mpierr.Success {
				f(op, b)
			}
		}
	}
}

func TestKernelsAgainstPlainGo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	eachPair(func(op datatype.Op, b datatype.Basic) {
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
		op         datatype.Op
		x, y, want float64
	}{
		{datatype.Min, 0, neg, neg}, {datatype.Min, neg, 0, neg}, {datatype.Max, neg, 0, 0}, {datatype.Max, 0, neg, 0},
		{datatype.Min, 1, math.NaN(), math.NaN()}, {datatype.Max, math.NaN(), 1, math.NaN()},
	} {
		mem := aligned(8)
		copy(mem, encode(c.x))
		Accumulate(c.op, datatype.BasicFloat64, mem, encode(c.y))
		if !same(datatype.BasicFloat64, mem, encode(c.want)) {
			t.Errorf("%s of %v and %v is %v, want %v", c.op, c.x, c.y, decode[float64](mem), c.want)
		}
	}
}

func TestNoOpIgnoresOperand(t *testing.T) {
	for b := datatype.Basic(1); b < basicCount; b++ {
		if !b.Valid() {
			continue
		}
		mem := aligned(32)
		fill(rand.New(rand.NewPCG(3, uint64(b))), b, mem)
		result := make([]byte, 32)
		GetAccumulate(datatype.NoOp, b, mem, nil, result)
		if !same(b, result, mem) {
			t.Errorf("no_op of %s read % x from % x", b, result, mem)
		}
	}
}

func TestCompareAndSwapGivesTheOldValue(t *testing.T) {
	for b := datatype.Basic(1); b < basicCount; b++ {
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
		"undefined operator": func() { Accumulate(datatype.BAnd, datatype.BasicFloat64, mem[:8], mem[8:16]) },
		"invalid operator":   func() { Accumulate(opCount, datatype.BasicInt64, mem[:8], mem[8:16]) },
		"invalid type":       func() { Accumulate(datatype.Sum, 0, mem[:8], mem[8:16]) },
		"misaligned":         func() { Accumulate(datatype.Sum, datatype.BasicInt32, mem[2:6], mem[8:12]) },
		"half an element":    func() { Accumulate(datatype.Sum, datatype.BasicInt32, mem[:6], mem[8:14]) },
		"short operand":      func() { Accumulate(datatype.Sum, datatype.BasicInt32, mem[:8], mem[8:12]) },
		"short result":       func() { GetAccumulate(datatype.Sum, datatype.BasicInt32, mem[:8], mem[8:16], mem[16:20]) },
		"swap of floats":     func() { CompareAndSwap(datatype.BasicFloat64, mem[:8], mem[8:16], mem[8:16], mem[16:24]) },
		"swap of two":        func() { CompareAndSwap(datatype.BasicInt32, mem[:8], mem[8:16], mem[8:16], mem[16:24]) },
		"copy in too long":   func() { words.CopyIn(mem[:7:7], mem[8:16]) },
		"copy out too long":  func() { words.CopyOut(mem[8:16], mem[:7:7]) },
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
	eachPair(func(op datatype.Op, b datatype.Basic) {
		n := testing.AllocsPerRun(20, func() {
			Accumulate(op, b, mem, operand)
			GetAccumulate(op, b, mem, operand, result)
			if b.Comparable() {
				s := b.Size()
				CompareAndSwap(b, mem[:s], operand[:s], operand[:s], result[:s])
			}
			words.CopyIn(mem, operand)
			words.CopyOut(result, mem)
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
		op, b := datatype.Op(opCode), datatype.Basic(basicCode)
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
	for op := datatype.Op(1); op < opCount; op++ {
		for _, typ := range []datatype.Basic{datatype.BasicInt64, datatype.BasicFloat64} {
			if op.Check(typ) == mpierr.Success {
				b.Run(fmt.Sprint(op, "/", typ), func(b *testing.B) {
					for b.Loop() {
						GetAccumulate(op, typ, mem, operand, result)
					}
				})
			}
		}
	}
	for _, typ := range []datatype.Basic{datatype.BasicInt8, datatype.BasicInt16, datatype.BasicInt32, datatype.BasicComplex64, datatype.BasicComplex128} {
		mem, operand, result := aligned(16)[:typ.Size()], make([]byte, typ.Size()), make([]byte, typ.Size())
		operand[0] = 1
		b.Run(fmt.Sprint("sum/", typ), func(b *testing.B) {
			for b.Loop() {
				GetAccumulate(datatype.Sum, typ, mem, operand, result)
			}
		})
	}
}
