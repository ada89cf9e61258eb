package userspace

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

// point makes m a message whose content is described by iov and whose address
// is name.
func (m *mmsghdr) point(iov *unix.Iovec, name *sockaddr) {
	m.header.Iov = iov
	m.header.SetIovlen(1)
	if name != nil {
		m.header.Name = &name[0]
		m.header.Namelen = uint32(len(name))
	}
}

// sendMessages sends a prefix of messages and returns its length.
func sendMessages(fd int, messages []mmsghdr) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(messages))),
		uintptr(len(messages)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// receiveMessages fills a prefix of messages and returns its length.
func receiveMessages(fd int, messages []mmsghdr) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(messages))),
		uintptr(len(messages)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// socketDrops returns how many datagrams the kernel dropped at fd for want of
// room, or with a wrong checksum.
func socketDrops(fd int) uint64 {
	const drops = 8 // SK_MEMINFO_DROPS
	var info [drops + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0 // Linux before 4.12
	}
	return uint64(info[drops])
}
