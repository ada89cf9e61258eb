package collective

import "unsafe"

// bytesOf returns the memory of s.
func bytesOf(s []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), 8*len(s))
}
