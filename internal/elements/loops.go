package elements

import (
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/words"
)

// Combine is Accumulate for memory that nobody else accesses meanwhile: the common
// operators take a fraction of the time. The results are the same, bit by bit, but for
// which NaN comes of two. It panics as Accumulate does.
func Combine(op datatype.Op, b datatype.Basic, dst, operand []byte) {
	find(op, b, dst)
	if f := loops[op][b]; f != nil && len(operand) == len(dst) && Aligned(b, operand) {
		f(dst, operand)
		return
	}
	Accumulate(op, b, dst, operand)
}

type number interface {
	integer | float32 | float64
}

// loops holds the loops of the common operators for numbers, nil for others.
var loops = makeLoops()

func makeLoops() *[opCount][basicCount]func(dst, operand []byte) {
	t := new([opCount][basicCount]func(dst, operand []byte))
	installLoops[int8](t, datatype.BasicInt8)
	installLoops[int16](t, datatype.BasicInt16)
	installLoops[int32](t, datatype.BasicInt32)
	installLoops[int64](t, datatype.BasicInt64)
	installLoops[uint8](t, datatype.BasicUint8)
	installLoops[uint16](t, datatype.BasicUint16)
	installLoops[uint32](t, datatype.BasicUint32)
	installLoops[uint64](t, datatype.BasicUint64)
	installLoops[float32](t, datatype.BasicFloat32)
	installLoops[float64](t, datatype.BasicFloat64)
	return t
}

func installLoops[T number](t *[opCount][basicCount]func(dst, operand []byte), b datatype.Basic) {
	t[datatype.Sum][b] = func(dst, operand []byte) {
		to, from := words.As[T](dst), words.As[T](operand)
		for i, v := range from {
			to[i] += v
		}
	}
	t[datatype.Prod][b] = func(dst, operand []byte) {
		to, from := words.As[T](dst), words.As[T](operand)
		for i, v := range from {
			to[i] *= v
		}
	}
	t[datatype.Min][b] = func(dst, operand []byte) {
		to, from := words.As[T](dst), words.As[T](operand)
		for i, v := range from {
			to[i] = min(to[i], v)
		}
	}
	t[datatype.Max][b] = func(dst, operand []byte) {
		to, from := words.As[T](dst), words.As[T](operand)
		for i, v := range from {
			to[i] = max(to[i], v)
		}
	}
}
