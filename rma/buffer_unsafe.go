package rma

import (
	"unsafe"

	"github.com/xdprma/xdprma/datatype"
)

func bytesOf[T any](s []T) []byte {
	var t T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(t)))
}

func bytesOfValue[T datatype.Element](p *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), int(unsafe.Sizeof(*p)))
}

// BytesOf returns the memory of s, for Create and Attach: others' accumulates find
// its elements aligned there. It is the same memory, not a copy.
func BytesOf[T datatype.Element](s []T) []byte { return bytesOf(s) }

func firstByte(b []byte) *byte { return unsafe.SliceData(b) }

// mem returns b's memory.
func (b *Buffer) mem() []byte { return unsafe.Slice(b.first, b.bytes) }

// overlaps reports whether b and o have bytes in common, gaps of derived datatypes counted.
func (b *Buffer) overlaps(o *Buffer) bool {
	p, q := uintptr(unsafe.Pointer(b.first)), uintptr(unsafe.Pointer(o.first))
	return b.bytes > 0 && o.bytes > 0 && p < q+uintptr(o.bytes) && q < p+uintptr(b.bytes)
}

// Slice returns the memory of a window as a slice of T, for the process's own
// loads and stores. Bytes at the end that make no whole element are left out. It
// panics if mem is not aligned for T, which memory from Allocate always is.
func Slice[T datatype.Element](mem []byte) []T {
	var t T
	size := int(unsafe.Sizeof(t))
	p := unsafe.Pointer(unsafe.SliceData(mem))
	if uintptr(p)%unsafe.Alignof(t) != 0 {
		panic("rma: memory is not aligned for the element type")
	}
	return unsafe.Slice((*T)(p), len(mem)/size)
}
