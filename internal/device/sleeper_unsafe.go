package device

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// These calls wait for nothing, so the scheduler is not told of them.

// pollNow returns how many of fds are ready.
func pollNow(fds []unix.PollFd) int {
	var none unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)),
		uintptr(unsafe.Pointer(&none)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// control changes what an epoll instance waits for at fd.
func control(epoll, fd int, events uint32) {
	e := unix.EpollEvent{Events: events}
	_, _, _ = unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epoll), unix.EPOLL_CTL_MOD, uintptr(fd), uintptr(unsafe.Pointer(&e)), 0, 0)
}
