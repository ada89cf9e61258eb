package comm

import (
	"unsafe"

	"github.com/xdprma/xdprma/datatype"
)

// bytesOf returns the memory of s.
func bytesOf[T datatype.Element](s []T) []byte {
	var t T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(t)))
}
