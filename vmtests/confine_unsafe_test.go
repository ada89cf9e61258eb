package vmtests

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// installFilter puts all threads of this process under a filter, for good.
func installFilter(filter []unix.SockFilter) error {
	runtime.LockOSThread() // no_new_privs is this thread's, and with TSYNC that of all
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: unsafe.SliceData(filter)}
	differs, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("install a filter of %d instructions: %w", len(filter), errno)
	}
	if differs != 0 {
		return fmt.Errorf("install a filter of %d instructions: thread %d has another one", len(filter), differs)
	}
	return nil
}
