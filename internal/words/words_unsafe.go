package words

import "unsafe"

// Address returns where b's memory starts. It is used for its low bits, and to compare.
func Address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// Word64 returns the word b[i:i+8], which the caller has aligned.
func Word64(b []byte, i int) *uint64 { return (*uint64)(unsafe.Pointer(&b[i : i+8][0])) }

// Word32 returns the word b[i:i+4], which the caller has aligned.
func Word32(b []byte, i int) *uint32 { return (*uint32)(unsafe.Pointer(&b[i : i+4][0])) }

// word16 returns the word b[i:i+2], which the caller has aligned.
func word16(b []byte, i int) *uint16 { return (*uint16)(unsafe.Pointer(&b[i : i+2][0])) }

// Container returns the aligned 4-byte word around b[i] and the bit in it at
// which b[i] starts.
//
// The word may begin before b or end after it, and that is harmless. An aligned
// word never crosses a page, so it is mapped wherever b is. On the Go heap,
// where every block starts at a multiple of 8 bytes and is as long, it lies in
// b's own block. And a compare-and-swap of it that succeeds writes back the
// neighbours that are there at that instant, so it loses no store to them,
// not even a plain one.
func Container(b []byte, i int) (word *uint32, shift uint) {
	p := unsafe.Pointer(&b[i])
	low := uintptr(p) & 3
	return (*uint32)(unsafe.Add(p, -int(low))), uint(low) * 8
}

// As returns b, which the caller has aligned, as a slice of elements.
func As[T any](b []byte) []T {
	var t T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(t)))
}
