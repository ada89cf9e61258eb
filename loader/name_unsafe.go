package loader

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// programAbout is the start of struct bpf_prog_info in linux/bpf.h, up to the name.
type programAbout struct {
	_    [64]byte
	name [unix.BPF_OBJ_NAME_LEN]byte
}

// nameOf returns the name of the program with a file descriptor, or nothing. The BPF library asks for more,
// and on the way tries whether the kernel loads a program: a rank under a filter of seccomp may not.
func nameOf(fd int) string {
	var about programAbout
	ask := struct { // of union bpf_attr, where pointers have 8 bytes
		fd, size uint32
		about    *programAbout
	}{uint32(fd), uint32(unsafe.Sizeof(about)), &about}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_OBJ_GET_INFO_BY_FD, uintptr(unsafe.Pointer(&ask)), unsafe.Sizeof(ask))
	runtime.KeepAlive(&about)
	if errno != 0 {
		return ""
	}
	return unix.ByteSliceToString(about.name[:])
}
