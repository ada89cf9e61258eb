package buffer

import "unsafe"

// bytesOf returns the memory of s.
func bytesOf[T any](s []T) []byte {
	var t T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(t)))
}

func bytesOfValue[T any](p *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), int(unsafe.Sizeof(*p)))
}

func firstByte(b []byte) *byte { return unsafe.SliceData(b) }

// Memory returns b's memory, of a derived datatype from the first to the last byte of
// data.
func (b Buffer) Memory() []byte { return unsafe.Slice(b.first, b.bytes) }
