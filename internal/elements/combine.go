package elements

import (
	"math"

	"github.com/xdprma/xdprma/datatype"
)

// word is what elements are combined in: elements of up to 4 bytes in the low
// bits of a uint32, elements of 8 bytes in a uint64. Bits above the element are
// ignored in results.
type word interface{ uint32 | uint64 }

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

// lift makes a kernel for elements of one width from a function of two elements.
type lift[U word] func(f func(a, b U) U) kernel

// The sizes of tables by operator and datatype.
const (
	opCount    = datatype.MaxLoc + 1
	basicCount = datatype.BasicInt16Int32 + 1
)

type table [opCount][basicCount]kernel

// kernels holds the kernel of each operator for each datatype, nil where the
// operator is not defined.
var kernels = makeKernels()

func makeKernels() *table {
	t := new(table)
	installInteger[uint32, int8](t, datatype.BasicInt8, lift1)
	installInteger[uint32, uint8](t, datatype.BasicUint8, lift1)
	installInteger[uint32, int16](t, datatype.BasicInt16, lift2)
	installInteger[uint32, uint16](t, datatype.BasicUint16, lift2)
	installInteger[uint32, int32](t, datatype.BasicInt32, lift4)
	installInteger[uint32, uint32](t, datatype.BasicUint32, lift4)
	installInteger[uint64, int64](t, datatype.BasicInt64, lift8)
	installInteger[uint64, uint64](t, datatype.BasicUint64, lift8)
	installAny(t, datatype.BasicBool, lift1)
	installLogical(t, datatype.BasicBool, lift1)
	installAny(t, datatype.BasicByte, lift1)
	installBitwise(t, datatype.BasicByte, lift1)
	installFloat32(t)
	installFloat64(t)
	installComplex(t)
	installPairs(t)
	for b := range datatype.Basic(basicCount) {
		installNative(t, b)
	}
	return t
}

func installAny[U word](t *table, b datatype.Basic, l lift[U]) {
	t[datatype.Replace][b] = l(func(_, b U) U { return b })
	t[datatype.NoOp][b] = l(func(a, _ U) U { return a })
}

func installLogical[U word](t *table, b datatype.Basic, l lift[U]) {
	truth := func(v bool) U {
		if v {
			return 1
		}
		return 0
	}
	t[datatype.LAnd][b] = l(func(a, b U) U { return truth(a != 0 && b != 0) })
	t[datatype.LOr][b] = l(func(a, b U) U { return truth(a != 0 || b != 0) })
	t[datatype.LXor][b] = l(func(a, b U) U { return truth((a != 0) != (b != 0)) })
}

func installBitwise[U word](t *table, b datatype.Basic, l lift[U]) {
	t[datatype.BAnd][b] = l(func(a, b U) U { return a & b })
	t[datatype.BOr][b] = l(func(a, b U) U { return a | b })
	t[datatype.BXor][b] = l(func(a, b U) U { return a ^ b })
}

// installInteger relies on wrap-around being the same for signed and unsigned
// integers; only the order of values depends on T.
func installInteger[U word, T integer](t *table, b datatype.Basic, l lift[U]) {
	installAny(t, b, l)
	installLogical(t, b, l)
	installBitwise(t, b, l)
	t[datatype.Sum][b] = l(func(a, b U) U { return a + b })
	t[datatype.Prod][b] = l(func(a, b U) U { return a * b })
	t[datatype.Min][b] = l(func(a, b U) U {
		if T(b) < T(a) {
			return b
		}
		return a
	})
	t[datatype.Max][b] = l(func(a, b U) U {
		if T(b) > T(a) {
			return b
		}
		return a
	})
}

func installFloat32(t *table) {
	from, bits := math.Float32frombits, math.Float32bits
	const b = datatype.BasicFloat32
	installAny(t, b, lift4)
	t[datatype.Sum][b] = lift4(func(x, y uint32) uint32 { return bits(from(x) + from(y)) })
	t[datatype.Prod][b] = lift4(func(x, y uint32) uint32 { return bits(from(x) * from(y)) })
	t[datatype.Min][b] = lift4(func(x, y uint32) uint32 { return bits(min(from(x), from(y))) })
	t[datatype.Max][b] = lift4(func(x, y uint32) uint32 { return bits(max(from(x), from(y))) })
}

func installFloat64(t *table) {
	from, bits := math.Float64frombits, math.Float64bits
	const b = datatype.BasicFloat64
	installAny(t, b, lift8)
	t[datatype.Sum][b] = lift8(func(x, y uint64) uint64 { return bits(from(x) + from(y)) })
	t[datatype.Prod][b] = lift8(func(x, y uint64) uint64 { return bits(from(x) * from(y)) })
	t[datatype.Min][b] = lift8(func(x, y uint64) uint64 { return bits(min(from(x), from(y))) })
	t[datatype.Max][b] = lift8(func(x, y uint64) uint64 { return bits(max(from(x), from(y))) })
}

func installComplex(t *table) {
	from := func(v uint64) complex64 {
		return complex(math.Float32frombits(uint32(v)), math.Float32frombits(uint32(v>>32)))
	}
	bits := func(c complex64) uint64 {
		return uint64(math.Float32bits(real(c))) | uint64(math.Float32bits(imag(c)))<<32
	}
	installAny(t, datatype.BasicComplex64, lift8)
	t[datatype.Sum][datatype.BasicComplex64] = lift8(func(x, y uint64) uint64 { return bits(from(x) + from(y)) })
	t[datatype.Prod][datatype.BasicComplex64] = lift8(func(x, y uint64) uint64 { return bits(from(x) * from(y)) })

	const wide = datatype.BasicComplex128
	t[datatype.Sum][wide] = lift16(func(x, y complex128) complex128 { return x + y })
	t[datatype.Prod][wide] = lift16(func(x, y complex128) complex128 { return x * y })
	t[datatype.Replace][wide] = lift16(func(_, y complex128) complex128 { return y })
	t[datatype.NoOp][wide] = lift16(func(x, _ complex128) complex128 { return x })
}

// installNative puts single instructions in place of compare-and-swap loops.
func installNative(t *table, b datatype.Basic) {
	isInt := t[datatype.BAnd][b] != nil
	switch b.Size() {
	case 4:
		t[datatype.Replace][b] = swap4
		if isInt {
			t[datatype.Sum][b] = add4
		}
	case 8:
		t[datatype.Replace][b] = swap8
		if isInt {
			t[datatype.Sum][b] = add8
		}
	}
}
