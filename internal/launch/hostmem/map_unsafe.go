package hostmem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// mapOver maps a file in the place of b, which is whole pages of a mapping.
func mapOver(b []byte, fd int) error {
	_, err := unix.MmapPtr(fd, 0, unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
	return err
}
