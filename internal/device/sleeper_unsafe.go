package device

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// These calls wait for nothing, but for a lock that the kernel holds for microseconds as epoll instances
// are in others. So the scheduler is not told of them: that would keep the monitor of the runtime awake,
// which costs more than the sleep.

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

// addTo has an epoll instance tell when fd can be read.
func addTo(epoll, fd int) bool {
	e := unix.EpollEvent{Events: unix.EPOLLIN}
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epoll), unix.EPOLL_CTL_ADD, uintptr(fd), uintptr(unsafe.Pointer(&e)), 0, 0)
	return errno == 0
}

// removeFrom ends what addTo began, if it did.
func removeFrom(epoll, fd int) {
	_, _, _ = unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epoll), unix.EPOLL_CTL_DEL, uintptr(fd), 0, 0, 0)
}
