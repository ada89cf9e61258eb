// Package datatype holds the datatypes that memory is described with (chapter 5 of the
// standard), and the operators of the accumulate calls.
//
// A Type says which bytes of memory are data: those of a column of a matrix, or of some fields
// of a struct. It is predefined, or made by a constructor such as Vector, Subarray or FromGo.
// One that was made is committed before it is used, save that of FromGo, which is committed
// already. buffer.Typed takes it for memory of this process, and rma.Location.As for a place in
// a target's window. A call carries the elements from one to the other, in order and without
// gaps: this is the packed data, which Pack and Unpack make and read as well.
//
// An Op combines elements, in the accumulate calls of package rma and in the reductions of
// package comm.
//
// The library itself uses the rest, and so may others that treat memory as it does: Iter walks
// the data piece by piece, Encode and Decode carry a Type to another process, and Accumulate,
// Combine, CompareAndSwap, CopyIn and CopyOut access memory that others access at the same time.
// None of them does input or output, or starts a goroutine.
//
// Values travel and are stored little-endian, on machines that are little-endian and have 64-bit
// words. Sections named in comments are those of the standard's one-sided chapter.
package datatype

import "reflect"

// Basic is the code of a predefined datatype. It goes on the wire, so its values
// never change; the zero value is no datatype.
type Basic uint8

// The predefined datatypes. Bool is a logical value of one byte, zero or one;
// Byte is data without a number's meaning, on which only bitwise operators work.
const (
	BasicInt8       Basic = 1
	BasicInt16      Basic = 2
	BasicInt32      Basic = 3
	BasicInt64      Basic = 4
	BasicUint8      Basic = 5
	BasicUint16     Basic = 6
	BasicUint32     Basic = 7
	BasicUint64     Basic = 8
	BasicFloat32    Basic = 9
	BasicFloat64    Basic = 10
	BasicBool       Basic = 11
	BasicByte       Basic = 12
	BasicComplex64  Basic = 13
	BasicComplex128 Basic = 14

	// A value and its index, for MinLoc and MaxLoc; see Pair.
	BasicFloat32Int32 Basic = 16
	BasicFloat64Int32 Basic = 17
	BasicInt64Int32   Basic = 18
	BasicInt32Int32   Basic = 19
	BasicInt16Int32   Basic = 20

	basicCount = 21 // 15 is no datatype
)

var basicSizes = [basicCount]uint8{
	BasicInt8: 1, BasicInt16: 2, BasicInt32: 4, BasicInt64: 8,
	BasicUint8: 1, BasicUint16: 2, BasicUint32: 4, BasicUint64: 8,
	BasicFloat32: 4, BasicFloat64: 8, BasicBool: 1, BasicByte: 1,
	BasicComplex64: 8, BasicComplex128: 16,
	BasicFloat32Int32: 8, BasicFloat64Int32: 16, BasicInt64Int32: 16, BasicInt32Int32: 8, BasicInt16Int32: 8,
}

var basicNames = [basicCount]string{
	BasicInt8: "int8", BasicInt16: "int16", BasicInt32: "int32", BasicInt64: "int64",
	BasicUint8: "uint8", BasicUint16: "uint16", BasicUint32: "uint32", BasicUint64: "uint64",
	BasicFloat32: "float32", BasicFloat64: "float64", BasicBool: "bool", BasicByte: "byte",
	BasicComplex64: "complex64", BasicComplex128: "complex128",
	BasicFloat32Int32: "float32_int32", BasicFloat64Int32: "float64_int32", BasicInt64Int32: "int64_int32",
	BasicInt32Int32: "int32_int32", BasicInt16Int32: "int16_int32",
}

// Valid reports whether b is the code of a predefined datatype.
func (b Basic) Valid() bool { return b < basicCount && basicSizes[b] != 0 }

// Size returns the bytes of one element, and 0 if b is not valid.
func (b Basic) Size() int {
	if b >= basicCount {
		return 0
	}
	return int(basicSizes[b])
}

// Type returns the predefined datatype with the code b, nil if b is not valid.
func (b Basic) Type() *Type {
	if b >= basicCount {
		return nil
	}
	return byBasic[b]
}

// Align returns the alignment in bytes that the address of an accumulated
// element must have: its size, but at most 8; 0 if b is not valid. Complex64 and
// the pairs of 8 bytes therefore need more than the Go compiler gives a struct
// field of such a type, because their two halves are updated as one word.
func (b Basic) Align() int { return min(b.Size(), 8) }

// Comparable reports whether compare-and-swap is defined for b: integers, Bool
// and Byte (section 11.3.4).
func (b Basic) Comparable() bool {
	return b.Valid() && !b.Pair() && b != BasicFloat32 && b != BasicFloat64 && b != BasicComplex64 && b != BasicComplex128
}

// String returns the datatype's name, or "invalid".
func (b Basic) String() string {
	if !b.Valid() {
		return "invalid"
	}
	return basicNames[b]
}

// The predefined datatypes; see Basic for their meaning.
var (
	Int8       = predefined(BasicInt8)
	Int16      = predefined(BasicInt16)
	Int32      = predefined(BasicInt32)
	Int64      = predefined(BasicInt64)
	Uint8      = predefined(BasicUint8)
	Uint16     = predefined(BasicUint16)
	Uint32     = predefined(BasicUint32)
	Uint64     = predefined(BasicUint64)
	Float32    = predefined(BasicFloat32)
	Float64    = predefined(BasicFloat64)
	Bool       = predefined(BasicBool)
	Byte       = predefined(BasicByte)
	Complex64  = predefined(BasicComplex64)
	Complex128 = predefined(BasicComplex128)
)

// Element is the set of Go types that have a predefined datatype: numbers, bool,
// and pairs of a value and its index.
type Element interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 |
		~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 |
		~float32 | ~float64 | ~bool | ~complex64 | ~complex128 |
		Pair[int16] | Pair[int32] | Pair[int64] | Pair[float32] | Pair[float64]
}

// byKind has nil for structs, the elements that are pairs.
var byKind = [...]*Type{
	reflect.Int: Int64, reflect.Int8: Int8, reflect.Int16: Int16, reflect.Int32: Int32, reflect.Int64: Int64,
	reflect.Uint: Uint64, reflect.Uint8: Uint8, reflect.Uint16: Uint16, reflect.Uint32: Uint32, reflect.Uint64: Uint64,
	reflect.Float32: Float32, reflect.Float64: Float64, reflect.Bool: Bool,
	reflect.Complex64: Complex64, reflect.Complex128: Complex128, reflect.Struct: nil,
}

var byBasic = func() (types [basicCount]*Type) {
	for _, t := range []*Type{
		Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64, Float32, Float64, Bool, Byte, Complex64, Complex128,
		Float32Int32, Float64Int32, Int64Int32, Int32Int32, Int16Int32,
	} {
		types[t.Basic()] = t
	}
	return types
}()

// Of returns the predefined datatype of the Go type T: Int64 for int, Uint64 for
// uint, Uint8 (not Byte) for byte, which Go does not tell apart from uint8, and for
// a Pair that of its value and index.
func Of[T Element]() *Type {
	if t := byKind[reflect.TypeFor[T]().Kind()]; t != nil {
		return t
	}
	return goPairs[reflect.TypeFor[T]()]
}

// BasicOf returns the code of the predefined datatype that holds a T.
func BasicOf[T Element]() Basic { return Of[T]().Basic() }
