package capability

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// sets are the effective, permitted and inheritable set of a thread. The kernel takes
// an ambient capability away with the permitted or the inheritable one.
type sets [2]unix.CapUserData

func current() (s sets, err error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &s[0]); err != nil {
		return s, fmt.Errorf("read capabilities: %w", err)
	}
	return s, nil
}

// apply gives all threads of the process these sets. Go's own call for that panics in a
// program with cgo.
func (s sets) apply() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var pin runtime.Pinner // the stack may move meanwhile, and what is pinned is not on it
	defer pin.Unpin()
	pin.Pin(&header)
	pin.Pin(&s)
	_, _, errno := psx.Syscall3(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&s)), 0)
	if errno != 0 {
		return fmt.Errorf("capset: %w", errno)
	}
	return nil
}
