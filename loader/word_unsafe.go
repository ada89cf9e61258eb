package loader

import (
	"sync/atomic"
	"unsafe"
)

// wordOf returns the word that mapped memory begins with, nil if there is none.
func wordOf(mem []byte) *atomic.Uint64 {
	if mem == nil {
		return nil
	}
	return (*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(mem)))
}

// headOf returns the half of a word that a record begins with.
func headOf(record []byte) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(unsafe.SliceData(record)))
}
