package windows

import "unsafe"

// Address returns the address of b's first byte in this process, 0 for a nil
// slice. It does not keep b alive.
func Address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// countersAt returns the counters in b, which is aligned.
func countersAt(b []byte) []counter {
	return unsafe.Slice((*counter)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/CounterLen)
}

// wordAt returns the word at the start of b, which is aligned.
func wordAt(b []byte) *uint64 { return (*uint64)(unsafe.Pointer(&b[:8][0])) }
