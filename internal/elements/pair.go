package elements

import (
	"math"

	"github.com/xdprma/xdprma/datatype"
)

// A pair of 8 bytes has its index in the high half of the word, one of 16 bytes
// in the low half of the second word, the value is what comes first.

func installPairs(t *table) {
	installPair8(t, datatype.BasicFloat32Int32, func(w uint64) float32 { return math.Float32frombits(uint32(w)) })
	installPair8(t, datatype.BasicInt32Int32, func(w uint64) int32 { return int32(w) })
	installPair8(t, datatype.BasicInt16Int32, func(w uint64) int16 { return int16(w) })
	installPair16(t, datatype.BasicFloat64Int32, math.Float64frombits)
	installPair16(t, datatype.BasicInt64Int32, func(w uint64) int64 { return int64(w) })
}

func installPair8[V datatype.PairValue](t *table, b datatype.Basic, value func(uint64) V) {
	pair := func(w uint64) datatype.Pair[V] { return datatype.Pair[V]{Value: value(w), Index: int32(w >> 32)} }
	choose := func(better func(a, b datatype.Pair[V]) bool) kernel {
		return lift8(func(x, y uint64) uint64 {
			if better(pair(y), pair(x)) {
				return y
			}
			return x
		})
	}
	installAny(t, b, lift8)
	t[datatype.MinLoc][b], t[datatype.MaxLoc][b] = choose(lowest[V]), choose(highest[V])
}

func installPair16[V datatype.PairValue](t *table, b datatype.Basic, value func(uint64) V) {
	pair := func(w wide) datatype.Pair[V] { return datatype.Pair[V]{Value: value(w.low), Index: int32(w.high)} }
	choose := func(better func(a, b datatype.Pair[V]) bool) kernel {
		return liftWide(func(x, y wide) wide {
			if better(pair(y), pair(x)) {
				return y
			}
			return x
		})
	}
	t[datatype.Replace][b] = liftWide(func(_, y wide) wide { return y })
	t[datatype.NoOp][b] = liftWide(func(x, _ wide) wide { return x })
	t[datatype.MinLoc][b], t[datatype.MaxLoc][b] = choose(lowest[V]), choose(highest[V])
}

// lowest reports whether MinLoc prefers a over b. A NaN is preferred over every
// number, as Min does.
func lowest[V datatype.PairValue](a, b datatype.Pair[V]) bool {
	if a.Value == b.Value || nan(a.Value) && nan(b.Value) {
		return a.Index < b.Index
	}
	return nan(a.Value) || a.Value < b.Value
}

// highest reports whether MaxLoc prefers a over b.
func highest[V datatype.PairValue](a, b datatype.Pair[V]) bool {
	if a.Value == b.Value || nan(a.Value) && nan(b.Value) {
		return a.Index < b.Index
	}
	return nan(a.Value) || a.Value > b.Value
}

func nan[V datatype.PairValue](v V) bool { return v != v }
