package device

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// gate lets a goroutine wait for descriptors by Go's own poller. A thread that blocks in a system
// call keeps its processor of the Go scheduler until the runtime's monitor takes it away, and keeps
// the monitor awake until then: that costs more than the sleep itself, and time that other pollers
// of the process lack. The gate is open while somebody waits, and shut otherwise, because each
// frame would wake a thread.
type gate struct {
	inner int // an epoll instance of the descriptors
	outer int // one of inner alone, if the gate is open; it belongs to file
	file  *os.File
	conn  syscall.RawConn // of file
}

// open makes the gate to descriptors that can be polled. It is shut.
func (g *gate) open(fds []unix.PollFd) (err error) {
	if g.inner, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("make an epoll instance: %w: raise the limit on open files (ulimit -n)", err)
	}
	if g.outer, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return errors.Join(fmt.Errorf("make an epoll instance: %w: raise the limit on open files (ulimit -n)", err), unix.Close(g.inner))
	}
	err = unix.SetNonblock(g.outer, true) // only then Go's poller takes it
	g.file = os.NewFile(uintptr(g.outer), "gate")
	for _, p := range fds {
		err = errors.Join(err, unix.EpollCtl(g.inner, unix.EPOLL_CTL_ADD, int(p.Fd), &unix.EpollEvent{Events: unix.EPOLLIN}))
	}
	err = errors.Join(err, unix.EpollCtl(g.outer, unix.EPOLL_CTL_ADD, g.inner, &unix.EpollEvent{}))
	if err == nil {
		if g.conn, err = g.file.SyscallConn(); err == nil {
			err = g.file.SetReadDeadline(time.Time{}) // an error where Go's poller has not taken it
		}
	}
	if err != nil {
		return errors.Join(fmt.Errorf("wait by epoll: %w", err), g.close())
	}
	return nil
}

// wait blocks until ready, which it calls at once and whenever a descriptor may have become ready
// to be read, returns true; or until d has passed, which it measures in milliseconds.
func (g *gate) wait(d time.Duration, ready func(uintptr) bool) {
	_ = g.file.SetReadDeadline(time.Now().Add(d))
	control(g.outer, g.inner, unix.EPOLLIN)
	_ = g.conn.Read(ready) // an error says that d has passed
	control(g.outer, g.inner, 0)
}

func (g *gate) close() error {
	if g.file == nil {
		return nil
	}
	return errors.Join(g.file.Close(), unix.Close(g.inner))
}
