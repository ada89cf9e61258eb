package device

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// pollNow returns how many of fds are ready. It waits for nothing, so the scheduler is not told of the call.
func pollNow(fds []unix.PollFd) int {
	var none unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)),
		uintptr(unsafe.Pointer(&none)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// addTo has an epoll instance tell when fd can be read. As that instance is itself in one, the kernel takes a
// lock of the whole system for this, whose holder may lack a processor: the scheduler is told of the call.
func addTo(epoll, fd int) bool {
	e := unix.EpollEvent{Events: unix.EPOLLIN}
	_, _, errno := unix.Syscall6(unix.SYS_EPOLL_CTL, uintptr(epoll), unix.EPOLL_CTL_ADD, uintptr(fd), uintptr(unsafe.Pointer(&e)), 0, 0)
	return errno == 0
}

// removeFrom ends what addTo began, if it did.
func removeFrom(epoll, fd int) {
	_, _, _ = unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epoll), unix.EPOLL_CTL_DEL, uintptr(fd), 0, 0, 0)
}
