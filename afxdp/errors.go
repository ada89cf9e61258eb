package afxdp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// step is a stage of Open; it decides what an errno means.
type step string

const (
	stepSocket   step = "create the socket"
	stepAdopt    step = "take over the socket"
	stepMemory   step = "map the packet memory"
	stepRegister step = "register the packet memory"
	stepRings    step = "set up the rings"
	stepBind     step = "bind"
)

// explain wraps the error of one stage of Open in what to do about it.
func explain(at step, err error, c *Config) error {
	where := fmt.Sprintf("afxdp: interface %s, queue %d: %s", c.name(), c.Queue, at)
	if hint := hintFor(at, err, c); hint != "" {
		return fmt.Errorf("%s: %w: %s", where, err, hint)
	}
	return fmt.Errorf("%s: %w", where, err)
}

func (c *Config) name() string {
	if c.Interface != "" {
		return c.Interface
	}
	return fmt.Sprintf("#%d", c.IfIndex)
}

// hintFor says what to do about the error of one stage, or nothing.
func hintFor(at step, err error, c *Config) string {
	is := func(errno unix.Errno) bool { return errors.Is(err, errno) }
	switch {
	case is(unix.EPERM), is(unix.EACCES):
		return "run as root, or grant the process CAP_NET_RAW"
	case is(unix.EAFNOSUPPORT):
		return "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)"
	case is(unix.EMFILE), is(unix.ENFILE):
		return "raise the limit on open files (ulimit -n)"
	case is(unix.ENOBUFS), is(unix.ENOMEM):
		return fmt.Sprintf("raise RLIMIT_MEMLOCK (ulimit -l) above the %d KiB of packet memory, grant CAP_IPC_LOCK, or use fewer queues (XDPRMA_QUEUES), each of which has chunks of its own", c.umemSize()>>10)
	case at == stepAdopt:
		return "the descriptor that was passed in must be an AF_XDP socket on which nothing was set up yet"
	case at == stepBind:
		return bindHint(is, c)
	}
	return ""
}

func bindHint(is func(unix.Errno) bool, c *Config) string {
	switch {
	case is(unix.EBUSY):
		return "another AF_XDP socket is bound to this queue: close it or choose another queue"
	case is(unix.EOPNOTSUPP) && c.ZeroCopy == Force:
		return "the driver has no zero-copy for this queue and configuration: use Auto or Copy"
	case is(unix.EOPNOTSUPP):
		return "the driver cannot do this: try Copy, without MultiBuffer"
	case is(unix.ENODEV), is(unix.ENXIO):
		return "no such interface in the network namespace of the socket"
	case is(unix.ENETDOWN):
		return "set the interface up"
	case is(unix.EINVAL) && c.MultiBuffer:
		return "the interface has no such queue, or the kernel has no multi-buffer frames (Linux 6.6): check the number of queues (ethtool -l), or turn MultiBuffer off"
	case is(unix.EINVAL):
		return "the interface has no such queue: check their number (ethtool -l)"
	}
	return ""
}
