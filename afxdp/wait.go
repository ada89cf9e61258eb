package afxdp

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Wait blocks until a frame can be received, wakeFD is readable, or d has
// passed; it may also return early. wakeFD is a descriptor of the caller's,
// typically an eventfd, or -1. readable reports whether a frame is waiting.
//
// In copy mode the kernel also sends what is in the transmit ring when Wait
// begins, and does not report frames that it drops then. With zero-copy Wait
// wakes the driver if it ran out of receive chunks.
//
// The error is ErrDeviceGone when the interface was removed.
func (s *Socket) Wait(d time.Duration, wakeFD int) (readable bool, err error) {
	fds := [2]unix.PollFd{
		{Fd: int32(s.fd), Events: unix.POLLIN},
		{Fd: int32(wakeFD), Events: unix.POLLIN},
	}
	timeout := unix.NsecToTimespec(int64(max(d, 0)))
	n, err := unix.Ppoll(fds[:], &timeout, nil)
	switch {
	case err == unix.EINTR:
		return false, s.checkDevice()
	case err != nil:
		return false, fmt.Errorf("afxdp: wait: %w", err)
	case fds[0].Revents&unix.POLLNVAL != 0 || fds[1].Revents&unix.POLLNVAL != 0:
		return false, fmt.Errorf("afxdp: wait: %w", unix.EBADF)
	case n == 0:
		return false, s.checkDevice()
	}
	return fds[0].Revents&unix.POLLIN != 0, nil
}

// checkDevice returns the sticky error if the interface was removed, of which
// poll gives no sign.
func (s *Socket) checkDevice() error {
	errno, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return fmt.Errorf("afxdp: wait: %w", err)
	}
	if errno != 0 {
		s.kick.fail(explainSend(unix.Errno(errno)))
	}
	return s.kick.err()
}

// Refill wakes the driver if it ran out of receive chunks before the last Release, which
// only a driver with zero-copy asks for; otherwise it costs one load. A caller that
// spins on Receive calls it now and then. A caller that uses Wait need not.
func (s *Socket) Refill() {
	if s.info.ZeroCopy && s.rx.fill.wantsWakeup() {
		// A failure shows in Kick and Wait; the flag stays set for the next try.
		_ = receiveFrom(s.fd)
	}
}
