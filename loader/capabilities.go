package loader

import (
	"fmt"
	"math"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"
)

// Caps is what the calling thread may do and the kernel can.
type Caps struct {
	NetRaw   bool   // CAP_NET_RAW: AF_XDP sockets
	NetAdmin bool   // CAP_NET_ADMIN: attach to an interface
	BPF      bool   // CAP_BPF, or CAP_SYS_ADMIN, which includes it: load programs
	Perfmon  bool   // CAP_PERFMON, or CAP_SYS_ADMIN: programs are not checked for what a processor may do by mistake
	SysAdmin bool   // CAP_SYS_ADMIN: namespaces
	IPCLock  bool   // CAP_IPC_LOCK: the frames' memory is not counted against MemLock
	MemLock  uint64 // soft RLIMIT_MEMLOCK in bytes; math.MaxUint64 is unlimited
	Kernel   string // release, as uname -r prints it
	// BPFError says why XDP programs or AF_XDP maps cannot be made; nil if they can.
	BPFError error
}

// Missing names the capabilities that Attach and AF_XDP sockets need and that
// are not effective.
func (c Caps) Missing() []string {
	var missing []string
	for _, m := range []struct {
		name string
		held bool
	}{{"CAP_BPF", c.BPF}, {"CAP_NET_ADMIN", c.NetAdmin}, {"CAP_NET_RAW", c.NetRaw}} {
		if !m.held {
			missing = append(missing, m.name)
		}
	}
	return missing
}

// Capabilities looks up what the calling thread may do. It does not block.
func Capabilities() (Caps, error) {
	var c Caps
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // version 3 writes both
	if err := unix.Capget(&header, &data[0]); err != nil {
		return c, fmt.Errorf("read capabilities: %w", err)
	}
	has := func(n int) bool { return data[n/32].Effective&(1<<(n%32)) != 0 }
	c.NetRaw = has(unix.CAP_NET_RAW)
	c.NetAdmin = has(unix.CAP_NET_ADMIN)
	c.BPF = has(unix.CAP_BPF) || has(unix.CAP_SYS_ADMIN)
	c.Perfmon = has(unix.CAP_PERFMON) || has(unix.CAP_SYS_ADMIN)
	c.SysAdmin = has(unix.CAP_SYS_ADMIN)
	c.IPCLock = has(unix.CAP_IPC_LOCK)

	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return c, fmt.Errorf("read RLIMIT_MEMLOCK: %w", err)
	}
	c.MemLock = limit.Cur
	if limit.Cur == unix.RLIM_INFINITY {
		c.MemLock = math.MaxUint64
	}

	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return c, fmt.Errorf("read the kernel's release: %w", err)
	}
	c.Kernel = unix.ByteSliceToString(name.Release[:])

	c.BPFError = features.HaveProgramType(ebpf.XDP)
	if c.BPFError == nil {
		c.BPFError = features.HaveMapType(ebpf.XSKMap)
	}
	if c.BPFError != nil {
		c.BPFError = plain{c.BPFError}
	}
	return c, nil
}
