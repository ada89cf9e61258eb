package rma

import (
	"math"
	"unsafe"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
)

// BytesOf returns the memory of s, for Create and Attach: others' accumulates find
// its elements aligned there. It is the same memory, not a copy.
func BytesOf[T datatype.Element](s []T) []byte { return buffer.Of(s).Memory() }

// overlap reports whether b and o have bytes in common, gaps of derived datatypes counted.
func overlap(b, o buffer.Buffer) bool {
	m, n := b.Memory(), o.Memory()
	p, q := uintptr(unsafe.Pointer(unsafe.SliceData(m))), uintptr(unsafe.Pointer(unsafe.SliceData(n)))
	return len(m) > 0 && len(n) > 0 && p < q+uintptr(len(n)) && q < p+uintptr(len(m))
}

// Slice returns the memory of a window as a slice of T, for the process's own
// loads and stores. Bytes at the end that make no whole element are left out. It
// panics if mem is not aligned for T, which memory from Allocate always is.
func Slice[T datatype.Element](mem []byte) []T { return sliceOf[T](mem) }

func sliceOf[T any](mem []byte) []T {
	var t T
	size := int(unsafe.Sizeof(t))
	if size == 0 {
		return nil
	}
	p := unsafe.Pointer(unsafe.SliceData(mem))
	if uintptr(p)%unsafe.Alignof(t) != 0 {
		panic("rma: memory is not aligned for the element type")
	}
	return unsafe.Slice((*T)(p), len(mem)/size)
}

// BytesOfStructs is BytesOf for a slice of a Go struct, or of another type for which
// datatype.FromGo has a datatype. It panics if there is none, as for types with pointers.
func BytesOfStructs[T any](s []T) []byte {
	mustBePlain[T]()
	return memoryOf(s)
}

// StructSlice is Slice for such a type. Its layout is that of the Go type, which is the
// same at all ranks.
func StructSlice[T any](mem []byte) []T {
	mustBePlain[T]()
	return sliceOf[T](mem)
}

func mustBePlain[T any]() {
	if _, err := kindOf[T](); err != nil {
		panic("rma: " + err.Error())
	}
}

// MakeSlice returns a slice of n zeroed elements for CreateOf, Create and Attach, aligned to 64
// bytes: as all calls on elements need it, and so that it shares no cache line with others.
// Go aligns some elements to less, such as complex64 and pairs of two 4-byte fields. It panics
// as make does, and if T has no datatype.
func MakeSlice[T any](n int) []T {
	const alignment = 64
	mustBePlain[T]()
	var t T
	size := int(unsafe.Sizeof(t))
	if size == 0 || n < 0 || n > (math.MaxInt-alignment)/size {
		return make([]T, n)
	}
	mem := make([]uint64, (n*size+alignment)/8+1)
	p := unsafe.Pointer(unsafe.SliceData(mem))
	return unsafe.Slice((*T)(unsafe.Add(p, -uintptr(p)%alignment)), n)
}

func sizeOf[T any]() int {
	var t T
	return int(unsafe.Sizeof(t))
}

func memoryOf[T any](s []T) []byte {
	var t T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(t)))
}

// operand returns the place of one T, in at if that is large enough and T is of a predefined
// datatype alone, so that it has no pointers.
func operand[T any](basic datatype.Basic, at *[2]uint64) []T {
	var t T
	if basic == 0 || unsafe.Sizeof(t) > unsafe.Sizeof(*at) {
		return make([]T, 1)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(at)), 1)
}
