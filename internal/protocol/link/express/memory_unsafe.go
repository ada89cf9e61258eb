package express

import "unsafe"

// Slots and windows are used where they lie, because a program in the kernel uses them
// at the same time.
const (
	_ = -(SlotLen ^ uint(unsafe.Sizeof(Place{})))
	_ = -(WindowLen ^ uint(unsafe.Sizeof(Exposed{})))
)

// slotsIn returns the slots in b, which is aligned to 8 bytes.
func slotsIn(b []byte) []Place { return in[Place](b) }

// windowsIn returns the windows in b, likewise.
func windowsIn(b []byte) []Exposed { return in[Exposed](b) }

func in[T any](b []byte) []T {
	var t T
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)&7 != 0 {
		panic("express: the memory of the tables is not aligned to 8 bytes")
	}
	return unsafe.Slice((*T)(p), len(b)/int(unsafe.Sizeof(t)))
}

// bytesOf returns the memory of words.
func bytesOf(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
}
