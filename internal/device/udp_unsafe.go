package device

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is the kernel's struct mmsghdr, an element of the vectors of sendmmsg
// and recvmmsg.
type mmsghdr struct {
	header unix.Msghdr
	length uint32 // bytes sent or received
}

// content makes m a message of the bytes that iovs describe, one after the other.
func (m *mmsghdr) content(iovs []unix.Iovec) {
	m.header.Iov = unsafe.SliceData(iovs)
	m.header.SetIovlen(len(iovs))
}

// address makes name the address of m.
func (m *mmsghdr) address(name *sockaddr) {
	m.header.Name = &name[0]
	m.header.Namelen = uint32(len(name))
}

// segmentSize is a control message with the length of the datagrams that a message
// consists of: the kernel reads 2 bytes when it sends, and writes 4 when it has received.
type segmentSize struct {
	header unix.Cmsghdr
	size   [8]byte
}

// cut has the kernel cut m into datagrams of size bytes each when it sends m.
func (m *mmsghdr) cut(c *segmentSize, size int) {
	c.header = unix.Cmsghdr{Level: unix.SOL_UDP, Type: unix.UDP_SEGMENT}
	c.header.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(c.size[:], uint16(size))
	m.header.Control = (*byte)(unsafe.Pointer(c))
	m.header.SetControllen(unix.CmsgSpace(2))
}

// whole has the kernel send m as one datagram.
func (m *mmsghdr) whole() {
	m.header.Control = nil
	m.header.SetControllen(0)
}

// expect prepares m for the next message, and c for what the kernel says of it.
func (m *mmsghdr) expect(c *segmentSize) {
	m.header.Namelen = uint32(len(sockaddr{})) // the kernel wrote the actual length
	m.header.Control = (*byte)(unsafe.Pointer(c))
	m.header.SetControllen(unix.CmsgSpace(4))
}

// segment returns the length of the datagrams that the received message m consists of;
// the last may be shorter.
func (m *mmsghdr) segment(c *segmentSize) int {
	if int(m.header.Controllen) >= unix.CmsgLen(4) && c.header.Level == unix.SOL_UDP && c.header.Type == unix.UDP_GRO {
		if size := int(int32(binary.NativeEndian.Uint32(c.size[:]))); size > 0 {
			return size
		}
	}
	return int(m.length)
}

// The scheduler is not told of the calls that send and receive, as they wait for nothing: it would
// wake the runtime's monitor for each.

// isPlain reports whether m is one frame, which the kernel is not to cut.
func (m *mmsghdr) isPlain() bool { return m.header.Iovlen == 1 && m.header.Control == nil }

// sendMessages sends a prefix of messages and returns its length. For a frame by itself there is a call of
// the kernel that copies less from here.
func sendMessages(fd int, messages []mmsghdr) (int, unix.Errno) {
	if m := &messages[0]; len(messages) == 1 && m.isPlain() {
		_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(m.header.Iov.Base)), uintptr(m.header.Iov.Len),
			unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, uintptr(unsafe.Pointer(m.header.Name)), uintptr(m.header.Namelen))
		if errno != 0 {
			return 0, errno
		}
		return 1, 0
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(messages))),
		uintptr(len(messages)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// receiveMessages fills a prefix of messages and returns its length.
func receiveMessages(fd int, messages []mmsghdr) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(messages))),
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
