package datatype

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
