// Package lent hands an XDP program and AF_XDP sockets from a process that may make them to the
// program of a rank, by the protocol of systemd's socket activation: descriptors from 3 on, and
// variables that say how many there are, for which process, and what each is.
package lent

import (
	"fmt"
	"maps"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/userspace"
)

// The variables of the protocol; see sd_listen_fds(3).
const (
	EnvPID   = "LISTEN_PID"
	EnvCount = "LISTEN_FDS"
	EnvNames = "LISTEN_FDNAMES"
)

// The names of the descriptors. There is one socket for each queue, in the order of queues.
const (
	sockets  = "xdprma-xsks"
	sessions = "xdprma-sessions"
	counters = "xdprma-counters"
	config   = "xdprma-config_map"
	hello    = "xdprma-hello_map"
	link     = "xdprma-link" // keeps the program attached
	queue    = "xdprma-queue"
)

const first = 3 // descriptor

// envPMI names the descriptor by which a rank speaks with its launcher.
const envPMI = "PMI_FD"

// Loan is what is handed over.
type Loan struct {
	Classifier *loader.Program
	Sockets    []int
}

// Lend gives the calling thread the descriptors of a loan where the protocol wants them, to be
// inherited by the program that the thread executes, and returns its variables. Of others, the program
// has the first three and that of PMI, behind those of the loan. The goroutine must be locked to its
// thread, which has descriptors of its own from then on: the runtime goes on with the others. So
// no garbage is collected any more, and nothing else must stop the world from this thread, as
// syscall.Setuid does: the runtime would look at its epoll descriptor there, which is another file.
func (l Loan) Lend() (environ []string, err error) {
	m := l.Classifier.Maps()
	names := []string{sockets, sessions, counters, config, hello, link}
	fds := []int{m.Sockets.FD(), m.Sessions.FD(), m.Counters.FD(), m.Config.FD(), m.Hellos.FD(), l.Classifier.LinkFD()}
	for _, fd := range l.Sockets {
		names, fds = append(names, queue), append(fds, fd)
	}
	last := first + len(fds)
	pmi, launched := strconv.Atoi(os.Getenv(envPMI))
	if launched == nil {
		fds, last = append(fds, pmi), last+1
		names = append(names, envPMI)
	}
	debug.SetMemoryLimit(math.MaxInt64) // of $GOMEMLIMIT, which is meant for the program
	debug.SetGCPercent(-1)
	if err := unix.Unshare(unix.CLONE_FILES); err != nil {
		return nil, fmt.Errorf("have file descriptors of this thread's own: %w", err)
	}
	for i, fd := range fds { // out of the way of the others
		if fds[i], err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, last); err != nil {
			return nil, fmt.Errorf("hand over file descriptor %d, %s: %w", fd, names[i], err)
		}
	}
	for i, fd := range fds {
		if err := unix.Dup3(fd, first+i, 0); err != nil {
			return nil, fmt.Errorf("hand over %s as file descriptor %d: %w", names[i], first+i, err)
		}
	}
	if err := unix.CloseRange(uint(last), math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fmt.Errorf("keep other file descriptors from the program: %w", err)
	}
	if launched == nil {
		environ = append(environ, envPMI+"="+strconv.Itoa(last-1))
		fds, names = fds[:len(fds)-1], names[:len(names)-1]
	}
	return append(environ, EnvPID+"="+strconv.Itoa(os.Getpid()), EnvCount+"="+strconv.Itoa(len(fds)), EnvNames+"="+strings.Join(names, ":")), nil
}

// Borrow takes a loan into c if the environment says that this process has one. The descriptors
// stay open for as long as the process lives, and programs that it executes do not have them. What
// c does not say, the loan does; it must say the mode in which the program is attached.
func Borrow(c *userspace.Config, lookup func(string) string) error {
	named, err := descriptors(lookup)
	if err != nil || len(named) == 0 {
		return err
	}
	mode := loader.Native
	switch c.Transport {
	case userspace.XDPNative:
	case userspace.XDPGeneric:
		mode = loader.Generic
	default:
		return fmt.Errorf("the transport is %q: to use the XDP program in %s, say by %s or %s how it is attached",
			c.Transport, EnvNames, userspace.XDPNative, userspace.XDPGeneric)
	}
	for name, fds := range named {
		for _, fd := range fds {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
				return fmt.Errorf("file descriptor %d, %s by %s: %w", fd, name, EnvNames, err)
			}
		}
	}
	var m loader.Maps
	for _, one := range []struct {
		name string
		to   **ebpf.Map
	}{{sockets, &m.Sockets}, {sessions, &m.Sessions}, {counters, &m.Counters}, {config, &m.Config}, {hello, &m.Hellos}} {
		if *one.to, err = mapOf(named[one.name][0]); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		defer (*one.to).Close()
	}
	if c.Program, err = loader.FromMaps(m, mode); err != nil {
		return err
	}
	c.SocketFDs = named[queue]
	if at := c.Program.LocalAddr(); !c.Address.IsValid() {
		c.Address = at.Addr()
	}
	if c.Port == 0 {
		c.Port = c.Program.LocalAddr().Port()
	}
	if c.Queues == 0 {
		c.Queues = len(c.SocketFDs)
	}
	return nil
}

// mapOf returns a map with a descriptor of its own.
func mapOf(fd int) (*ebpf.Map, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate file descriptor %d: %w", fd, err)
	}
	m, err := ebpf.NewMapFromFD(own)
	if err != nil {
		return nil, fmt.Errorf("file descriptor %d is no map: %w", fd, err)
	}
	return m, nil
}

// descriptors returns the descriptors of a loan by their names: all of them, or none. Others
// that this process was given are not looked at.
func descriptors(lookup func(string) string) (map[string][]int, error) {
	names := strings.Split(lookup(EnvNames), ":")
	if lookup(EnvPID) != strconv.Itoa(os.Getpid()) || !strings.Contains(lookup(EnvNames), "xdprma-") {
		return nil, nil // it is for a process that this one comes from
	}
	if lookup(EnvCount) != strconv.Itoa(len(names)) {
		return nil, fmt.Errorf("%s=%q, and %s has %d names", EnvCount, lookup(EnvCount), EnvNames, len(names))
	}
	named := map[string][]int{}
	for i, name := range names {
		if strings.HasPrefix(name, "xdprma-") {
			named[name] = append(named[name], first+i)
		}
	}
	for _, name := range []string{sockets, sessions, counters, config, hello, link} {
		if n := len(named[name]); n != 1 {
			return nil, fmt.Errorf("%s has %s %d times and not once: `xdprma lend` passes all that a rank needs", EnvNames, name, n)
		}
	}
	known := []string{sockets, sessions, counters, config, hello, link, queue}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%s has %q, which is none of %s", EnvNames, name, strings.Join(known, ", "))
		}
	}
	if len(named[queue]) == 0 {
		return nil, fmt.Errorf("%s has no %s, a socket for each queue", EnvNames, queue)
	}
	return named, nil
}
