package loader

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// disconnect ends what connect did to a UDP socket. One that the kernel has chosen the port of loses it.
func disconnect(fd int) error {
	name := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&name)), unsafe.Sizeof(name))
	if errno != 0 {
		return errno
	}
	return nil
}
