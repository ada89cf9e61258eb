package afxdp

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

const hugePage = 2 << 20

// mapUMEM maps size bytes for packets, in huge pages if asked for and there are any.
func mapUMEM(size int, huge bool) (mem []byte, hugePages bool, err error) {
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_POPULATE
	if huge {
		rounded := (size + hugePage - 1) &^ (hugePage - 1)
		if mem, err = unix.Mmap(-1, 0, rounded, prot, flags|unix.MAP_HUGETLB); err == nil {
			return mem, true, nil
		}
	}
	mem, err = unix.Mmap(-1, 0, size, prot, flags)
	return mem, false, err
}

// sendTo hands the transmit ring of fd to the kernel. The scheduler is not told
// of the call, which waits for nothing: it would take the goroutine's processor
// away in the middle of a long batch, and have it go on in another thread.
func sendTo(fd int) unix.Errno {
	_, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return errno
}

// receiveFrom makes the driver look at the fill ring of fd.
func receiveFrom(fd int) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return errno
}

// raiseSendBuffer asks for size bytes of send buffer and returns what fd has.
func raiseSendBuffer(fd, size int) (int, error) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size) != nil {
		// Without the privilege the system caps the size, without an error.
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size); err != nil {
			return 0, err
		}
	}
	return unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
}

// raiseTxBudget asks for a budget of n descriptors a call and returns what fd has.
func raiseTxBudget(fd, n int) int {
	budget := uint32(n)
	if n == kernelTxBudget || setsockopt(fd, unix.XDP_MAX_TX_SKB_BUDGET, &budget) != nil {
		return kernelTxBudget
	}
	return n
}

// isXDP returns an error unless fd is an AF_XDP socket.
func isXDP(fd int) error {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err == nil && domain != unix.AF_XDP {
		err = errors.New("not an AF_XDP socket")
	}
	return err
}
