package datatype

import "math"

// PairValue is the set of value types that a Pair can have.
type PairValue interface {
	int16 | int32 | int64 | float32 | float64
}

// Pair is a value and the index where it was found, the operand of MinLoc and
// MaxLoc. It is one element of 8 bytes, or of 16 if V is int64 or float64; the
// padding in it is carried along and means nothing.
//
// Accumulates take a pair at a multiple of 8 bytes only. Go aligns pairs of two
// 4-byte fields to 4: memory that comes from a window is always right, a field
// of a struct may not be.
//
// Where V is a type parameter, Go does not take Pair[V] for an Element, whatever V may be. A
// generic function has the pair as its type parameter: func f[P Pair[int64] | Pair[float64]](p []P).
type Pair[V PairValue] struct {
	Value V     // what is compared
	Index int32 // where it was found
}

// The datatypes of pairs.
var (
	Float32Int32 = predefined(BasicFloat32Int32) // Pair[float32], MPI_FLOAT_INT
	Float64Int32 = predefined(BasicFloat64Int32) // Pair[float64], MPI_DOUBLE_INT
	Int64Int32   = predefined(BasicInt64Int32)   // Pair[int64], MPI_LONG_INT
	Int32Int32   = predefined(BasicInt32Int32)   // Pair[int32], MPI_2INT
	Int16Int32   = predefined(BasicInt16Int32)   // Pair[int16], MPI_SHORT_INT
)

// Pair reports whether b is the code of a pair of a value and an index.
func (b Basic) Pair() bool { return b >= BasicFloat32Int32 && b <= BasicInt16Int32 }

// A pair of 8 bytes has its index in the high half of the word, one of 16 bytes
// in the low half of the second word, the value is what comes first.

func installPairs(t *table) {
	installPair8(t, BasicFloat32Int32, func(w uint64) float32 { return math.Float32frombits(uint32(w)) })
	installPair8(t, BasicInt32Int32, func(w uint64) int32 { return int32(w) })
	installPair8(t, BasicInt16Int32, func(w uint64) int16 { return int16(w) })
	installPair16(t, BasicFloat64Int32, math.Float64frombits)
	installPair16(t, BasicInt64Int32, func(w uint64) int64 { return int64(w) })
}

func installPair8[V PairValue](t *table, b Basic, value func(uint64) V) {
	pair := func(w uint64) Pair[V] { return Pair[V]{value(w), int32(w >> 32)} }
	choose := func(better func(a, b Pair[V]) bool) kernel {
		return lift8(func(x, y uint64) uint64 {
			if better(pair(y), pair(x)) {
				return y
			}
			return x
		})
	}
	installAny(t, b, lift8)
	t[MinLoc][b], t[MaxLoc][b] = choose(lowest[V]), choose(highest[V])
}

func installPair16[V PairValue](t *table, b Basic, value func(uint64) V) {
	pair := func(w wide) Pair[V] { return Pair[V]{value(w.low), int32(w.high)} }
	choose := func(better func(a, b Pair[V]) bool) kernel {
		return liftWide(func(x, y wide) wide {
			if better(pair(y), pair(x)) {
				return y
			}
			return x
		})
	}
	t[Replace][b] = liftWide(func(_, y wide) wide { return y })
	t[NoOp][b] = liftWide(func(x, _ wide) wide { return x })
	t[MinLoc][b], t[MaxLoc][b] = choose(lowest[V]), choose(highest[V])
}

// lowest reports whether MinLoc prefers a over b. A NaN is preferred over every
// number, as Min does.
func lowest[V PairValue](a, b Pair[V]) bool {
	if a.Value == b.Value || nan(a.Value) && nan(b.Value) {
		return a.Index < b.Index
	}
	return nan(a.Value) || a.Value < b.Value
}

// highest reports whether MaxLoc prefers a over b.
func highest[V PairValue](a, b Pair[V]) bool {
	if a.Value == b.Value || nan(a.Value) && nan(b.Value) {
		return a.Index < b.Index
	}
	return nan(a.Value) || a.Value > b.Value
}

func nan[V PairValue](v V) bool { return v != v }
