package perf

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is the kernel's struct mmsghdr, an element of the vectors of sendmmsg
// and recvmmsg.
type mmsghdr struct {
	header unix.Msghdr
	length uint32 // bytes sent or received
}

// content makes m a message of the bytes that pieces describe, one after the other.
func (m *mmsghdr) content(pieces []unix.Iovec) {
	m.header.Iov = unsafe.SliceData(pieces)
	m.header.SetIovlen(len(pieces))
}

// sendMessages sends a prefix of messages and returns its length.
func sendMessages(fd int, messages []mmsghdr) (int, error) {
	return messageCall(unix.SYS_SENDMMSG, fd, messages)
}

// receiveMessages fills a prefix of messages and returns its length.
func receiveMessages(fd int, messages []mmsghdr) (int, error) {
	return messageCall(unix.SYS_RECVMMSG, fd, messages)
}

func messageCall(call uintptr, fd int, messages []mmsghdr) (int, error) {
	n, _, errno := unix.Syscall6(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(messages))), uintptr(len(messages)),
		unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
