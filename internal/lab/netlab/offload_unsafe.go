package netlab

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// setOffload turns an offload of an interface off (0) or on (1) by an ethtool command. The
// socket is of the interface's namespace.
func setOffload(fd int, name string, command, value uint32) error {
	option := struct{ command, value uint32 }{command, value} // struct ethtool_value
	request := struct {                                       // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		rest [16]byte
	}{data: unsafe.Pointer(&option)}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return errno
	}
	return nil
}
