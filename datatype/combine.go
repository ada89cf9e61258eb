package datatype

import "math"

// word is what elements are combined in: elements of up to 4 bytes in the low
// bits of a uint32, elements of 8 bytes in a uint64. Bits above the element are
// ignored in results.
type word interface{ uint32 | uint64 }

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

// lift makes a kernel for elements of one width from a function of two elements.
type lift[U word] func(f func(a, b U) U) kernel

type table [opCount][basicCount]kernel

// kernels holds the kernel of each operator for each datatype, nil where the
// operator is not defined.
var kernels = makeKernels()

func makeKernels() *table {
	t := new(table)
	installInteger[uint32, int8](t, BasicInt8, lift1)
	installInteger[uint32, uint8](t, BasicUint8, lift1)
	installInteger[uint32, int16](t, BasicInt16, lift2)
	installInteger[uint32, uint16](t, BasicUint16, lift2)
	installInteger[uint32, int32](t, BasicInt32, lift4)
	installInteger[uint32, uint32](t, BasicUint32, lift4)
	installInteger[uint64, int64](t, BasicInt64, lift8)
	installInteger[uint64, uint64](t, BasicUint64, lift8)
	installAny(t, BasicBool, lift1)
	installLogical(t, BasicBool, lift1)
	installAny(t, BasicByte, lift1)
	installBitwise(t, BasicByte, lift1)
	installFloat32(t)
	installFloat64(t)
	installComplex(t)
	installPairs(t)
	for b := range Basic(basicCount) {
		installNative(t, b)
	}
	return t
}

func installAny[U word](t *table, b Basic, l lift[U]) {
	t[Replace][b] = l(func(_, b U) U { return b })
	t[NoOp][b] = l(func(a, _ U) U { return a })
}

func installLogical[U word](t *table, b Basic, l lift[U]) {
	truth := func(v bool) U {
		if v {
			return 1
		}
		return 0
	}
	t[LAnd][b] = l(func(a, b U) U { return truth(a != 0 && b != 0) })
	t[LOr][b] = l(func(a, b U) U { return truth(a != 0 || b != 0) })
	t[LXor][b] = l(func(a, b U) U { return truth((a != 0) != (b != 0)) })
}

func installBitwise[U word](t *table, b Basic, l lift[U]) {
	t[BAnd][b] = l(func(a, b U) U { return a & b })
	t[BOr][b] = l(func(a, b U) U { return a | b })
	t[BXor][b] = l(func(a, b U) U { return a ^ b })
}

// installInteger relies on wrap-around being the same for signed and unsigned
// integers; only the order of values depends on T.
func installInteger[U word, T integer](t *table, b Basic, l lift[U]) {
	installAny(t, b, l)
	installLogical(t, b, l)
	installBitwise(t, b, l)
	t[Sum][b] = l(func(a, b U) U { return a + b })
	t[Prod][b] = l(func(a, b U) U { return a * b })
	t[Min][b] = l(func(a, b U) U {
		if T(b) < T(a) {
			return b
		}
		return a
	})
	t[Max][b] = l(func(a, b U) U {
		if T(b) > T(a) {
			return b
		}
		return a
	})
}

func installFloat32(t *table) {
	from, bits := math.Float32frombits, math.Float32bits
	const b = BasicFloat32
	installAny(t, b, lift4)
	t[Sum][b] = lift4(func(x, y uint32) uint32 { return bits(from(x) + from(y)) })
	t[Prod][b] = lift4(func(x, y uint32) uint32 { return bits(from(x) * from(y)) })
	t[Min][b] = lift4(func(x, y uint32) uint32 { return bits(min(from(x), from(y))) })
	t[Max][b] = lift4(func(x, y uint32) uint32 { return bits(max(from(x), from(y))) })
}

func installFloat64(t *table) {
	from, bits := math.Float64frombits, math.Float64bits
	const b = BasicFloat64
	installAny(t, b, lift8)
	t[Sum][b] = lift8(func(x, y uint64) uint64 { return bits(from(x) + from(y)) })
	t[Prod][b] = lift8(func(x, y uint64) uint64 { return bits(from(x) * from(y)) })
	t[Min][b] = lift8(func(x, y uint64) uint64 { return bits(min(from(x), from(y))) })
	t[Max][b] = lift8(func(x, y uint64) uint64 { return bits(max(from(x), from(y))) })
}

func installComplex(t *table) {
	from := func(v uint64) complex64 {
		return complex(math.Float32frombits(uint32(v)), math.Float32frombits(uint32(v>>32)))
	}
	bits := func(c complex64) uint64 {
		return uint64(math.Float32bits(real(c))) | uint64(math.Float32bits(imag(c)))<<32
	}
	installAny(t, BasicComplex64, lift8)
	t[Sum][BasicComplex64] = lift8(func(x, y uint64) uint64 { return bits(from(x) + from(y)) })
	t[Prod][BasicComplex64] = lift8(func(x, y uint64) uint64 { return bits(from(x) * from(y)) })

	const wide = BasicComplex128
	t[Sum][wide] = lift16(func(x, y complex128) complex128 { return x + y })
	t[Prod][wide] = lift16(func(x, y complex128) complex128 { return x * y })
	t[Replace][wide] = lift16(func(_, y complex128) complex128 { return y })
	t[NoOp][wide] = lift16(func(x, _ complex128) complex128 { return x })
}

// installNative puts single instructions in place of compare-and-swap loops.
func installNative(t *table, b Basic) {
	isInt := t[BAnd][b] != nil
	switch b.Size() {
	case 4:
		t[Replace][b] = swap4
		if isInt {
			t[Sum][b] = add4
		}
	case 8:
		t[Replace][b] = swap8
		if isInt {
			t[Sum][b] = add8
		}
	}
}
