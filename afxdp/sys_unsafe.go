package afxdp

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setsockopt sets an option of level SOL_XDP to the bytes of *value, all of
// them: the kernel takes a shorter structure for an older version of it.
func setsockopt[T any](fd, option int, value *T) error {
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(option),
		uintptr(unsafe.Pointer(value)), unsafe.Sizeof(*value), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// getsockopt reads an option of level SOL_XDP into *value. An older kernel may
// fill less than all of it.
func getsockopt[T any](fd, option int, value *T) error {
	size := uint32(unsafe.Sizeof(*value))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(option),
		uintptr(unsafe.Pointer(value)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// address returns where mem lies.
func address(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }

// mapRing maps one ring of fd, which has size entries, and returns the view of
// it and the mapping to unmap.
func mapRing[T uint64 | desc](fd int, pageOffset int64, size uint32, at unix.XDPRingOffset) (shared[T], []byte, error) {
	var entry T
	length := at.Desc + uint64(size)*uint64(unsafe.Sizeof(entry))
	if at.Producer+4 > length || at.Consumer+4 > length || at.Flags+4 > length || at.Flags == 0 {
		return shared[T]{}, nil, fmt.Errorf("ring layout without flags (Linux before 5.4): %w", unix.ENOTSUP)
	}
	mem, err := unix.Mmap(fd, pageOffset, int(length), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return shared[T]{}, nil, err
	}
	return shared[T]{
		producer: (*uint32)(unsafe.Pointer(&mem[at.Producer])),
		consumer: (*uint32)(unsafe.Pointer(&mem[at.Consumer])),
		flags:    (*uint32)(unsafe.Pointer(&mem[at.Flags])),
		entries:  unsafe.Slice((*T)(unsafe.Pointer(&mem[at.Desc])), size),
	}, mem, nil
}
