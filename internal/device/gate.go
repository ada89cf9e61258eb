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
// of the process lack. The gate is an epoll instance, which Go's poller watches. It is open, which
// means that the descriptors are in it, while somebody waits, and shut otherwise: each frame would run
// through it, and wake a thread.
type gate struct {
	fds   []unix.PollFd
	epoll int             // belongs to file
	file  *os.File        // nil: there is no gate
	conn  syscall.RawConn // of file
}

// open makes the gate to descriptors that can be polled. It is shut. After an error there is no gate.
func (g *gate) open(fds []unix.PollFd) (err error) {
	g.fds = fds
	if g.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("make an epoll instance: %w: raise the limit on open files (ulimit -n)", err)
	}
	err = unix.SetNonblock(g.epoll, true) // only then Go's poller takes it
	g.file = os.NewFile(uintptr(g.epoll), "gate")
	if err == nil {
		if g.conn, err = g.file.SyscallConn(); err == nil {
			err = g.file.SetReadDeadline(time.Time{}) // an error where Go's poller has not taken it
		}
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("wait by epoll: %w", err), g.close())
		g.file = nil
	}
	return err
}

// wait blocks until ready, which it calls at once and whenever a descriptor may have become ready
// to be read, returns true; or until d has passed, which it measures in milliseconds. It returns false at once
// if there is no gate, or the kernel lacks memory for that.
func (g *gate) wait(d time.Duration, ready func(uintptr) bool) (waited bool) {
	if g.file == nil {
		return false
	}
	defer g.shut()
	for i := range g.fds {
		if !addTo(g.epoll, int(g.fds[i].Fd)) {
			return false
		}
	}
	_ = g.file.SetReadDeadline(time.Now().Add(d))
	_ = g.conn.Read(ready) // an error says that d has passed
	return true
}

// shut takes out of the gate what is in it.
func (g *gate) shut() {
	for i := range g.fds {
		removeFrom(g.epoll, int(g.fds[i].Fd))
	}
}

func (g *gate) close() error {
	if g.file == nil {
		return nil
	}
	return g.file.Close()
}
