// Package netlab builds networks out of network namespaces and veth pairs on
// one machine, for `xdprma run` and for tests: a namespace a rank, each with one
// interface.
//
//	1 rank   a veth pair with both ends in the rank's namespace
//	2 ranks  a veth pair between the two namespaces
//	more     a bridge in a namespace of its own, and a veth pair to each rank
//
// With several ranks a namespace there is always a bridge, unless there is one rank
// only, and packets from a rank's address leave through the rank's interface. Where the ranks of a
// namespace share its interface, it is as with one rank each.
//
// The namespaces are called xr-<pid>-<rank>, and xr-<pid>-br for the bridge's,
// and can be entered with `ip netns exec`. A second lab of the same process has
// xr-<pid>-<n>.<rank> instead; a namespace of several ranks is called after the
// first. All links live inside the namespaces, so nothing
// shows in the caller's own. Within rank r's namespace the interface is xr<r>,
// with the addresses 10.77.0.<r+1>/24 and fd77::<r+1>/64.
//
// CleanStale removes the remains of a killed process: the directory
// /run/xdprma/<pid> records when the process started, so that a process that
// has been given the same pid since is not taken for it, and its PID namespace, in
// which alone the pid says whether it lives.
package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Limits and defaults of a Config.
const (
	MaxRanks     = 1000 // a bridge has at most 1023 ports
	MaxQueues    = 64
	MinMTU       = 1280 // the least that IPv6 allows
	MaxMTU       = 65535
	DefaultMTU   = 1500
	smallNetwork = 250 // more ranks than this are addressed out of a /16
)

// Config describes a lab. Zero means the default.
type Config struct {
	Ranks        int  // number of ranks, each with an interface; default 1
	RanksPerHost int  // ranks in a namespace; default 1
	Share        bool // the ranks of a namespace have one interface, and its addresses, together
	MTU          int  // of every link, in bytes; default DefaultMTU
	Queues       int  // transmit and receive queues of every link; default 1
}

// Lab is a network that exists. Its methods may be called concurrently, except
// Close.
type Lab struct {
	config Config
	name   string  // what the names of its namespaces start with
	nodes  []*node // by rank; ranks of one host have the same
	bridge *node   // nil with two ranks or fewer, each in its namespace

	passing []link.Link // programs at the bridge's ports
	relays  []*Relay

	close    sync.Once
	closeErr error
}

// node is one namespace and a netlink socket within it.
type node struct {
	name   string
	ns     netns.NsHandle
	handle *netlink.Handle
}

// Supported returns nil if this process has the privileges to build a lab, or
// an error that says what it lacks.
func Supported() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read the process's capabilities: %w", err)
	}
	for _, c := range []struct {
		bit  int
		name string
	}{{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"}, {unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN"}} {
		if data[0].Effective&(1<<c.bit) == 0 {
			return fmt.Errorf("network namespaces need %s, which this process lacks: run as root", c.name)
		}
	}
	// In a user namespace the capabilities do not count for older objects, which are the
	// network namespace to return to and the directory of records.
	err := reenter()
	if err == nil {
		err = unix.Access(filepath.Dir(recordRoot), unix.W_OK)
	}
	if err != nil {
		return fmt.Errorf("this process may not return to its network namespace or write to %s: run as root outside any user namespace: %w",
			filepath.Dir(recordRoot), err)
	}
	return nil
}

// New builds a lab and blocks until its links carry traffic, usually some tens
// of milliseconds. On failure it leaves nothing behind.
func New(c Config) (*Lab, error) {
	if err := c.normalize(); err != nil {
		return nil, err
	}
	if err := Supported(); err != nil {
		return nil, err
	}
	name, err := claim()
	if err != nil {
		return nil, err
	}
	l := &Lab{config: c, name: name}
	if err := l.build(); err != nil {
		return nil, errors.Join(fmt.Errorf("build a network of %d namespaces: %w", c.Ranks, err), l.Close())
	}
	return l, nil
}

func (c *Config) normalize() error {
	for _, p := range []struct {
		value               *int
		absent, least, most int
		name                string
	}{
		{&c.Ranks, 1, 1, MaxRanks, "ranks"},
		{&c.RanksPerHost, 1, 1, MaxRanks, "ranks per host"},
		{&c.MTU, DefaultMTU, MinMTU, MaxMTU, "MTU"},
		{&c.Queues, 1, 1, MaxQueues, "queues"},
	} {
		if *p.value == 0 {
			*p.value = p.absent
		}
		if *p.value < p.least || *p.value > p.most {
			return fmt.Errorf("netlab: %s is %d, it must be %d to %d", p.name, *p.value, p.least, p.most)
		}
	}
	return nil
}

// Ranks returns the number of ranks.
func (l *Lab) Ranks() int { return l.config.Ranks }

// MTU returns the MTU of every link, in bytes.
func (l *Lab) MTU() int { return l.config.MTU }

// Namespace returns the name of rank's namespace, as `ip netns` knows it.
func (l *Lab) Namespace(rank int) string { return l.nodes[rank].name }

// Interface returns the name of rank's interface within its namespace.
func (l *Lab) Interface(rank int) string { return fmt.Sprintf("xr%d", l.port(rank)) }

// port returns the rank after which rank's interface is called: the first of those that have it.
func (l *Lab) port(rank int) int {
	if !l.config.Share {
		return rank
	}
	return rank - rank%l.config.RanksPerHost
}

// Sharer returns how many ranks before rank have its interface, too.
func (l *Lab) Sharer(rank int) int { return rank - l.port(rank) }

// ports calls f for each interface, with the first rank that has it.
func (l *Lab) ports(f func(rank int, n *node) error) error {
	for rank, n := range l.nodes {
		if l.port(rank) != rank {
			continue
		}
		if err := f(rank, n); err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
	}
	return nil
}

// Addr returns rank's IPv4 address.
func (l *Lab) Addr(rank int) netip.Addr {
	n := l.port(rank) + 1
	return netip.AddrFrom4([4]byte{10, 77, byte(n >> 8), byte(n)})
}

// Addr6 returns rank's IPv6 address. It is not assigned if the kernel has no IPv6.
func (l *Lab) Addr6(rank int) netip.Addr {
	n := l.port(rank) + 1
	return netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 14: byte(n >> 8), 15: byte(n)})
}

// MAC returns the link-layer address of rank's interface.
func (l *Lab) MAC(rank int) net.HardwareAddr { return mac(0, l.port(rank)) }

// mac returns a locally administered address; side tells the ends of a pair apart.
func mac(side byte, rank int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 'x', 'r', side, byte(rank >> 8), byte(rank)}
}

// Close removes everything that New made. Processes that still run in the
// namespaces lose their links at once. It is idempotent.
func (l *Lab) Close() error {
	l.close.Do(func() {
		nodes := slices.Compact(slices.Clone(l.nodes))
		if l.bridge != nil {
			nodes = append(nodes, l.bridge)
		}
		errs := []error{l.refuseAnswers()}
		for _, r := range l.relays {
			errs = append(errs, r.close())
		}
		for _, n := range nodes {
			errs = append(errs, n.remove())
		}
		errs = append(errs, release())
		l.closeErr = errors.Join(errs...)
	})
	return l.closeErr
}

// remove deletes the links and then the namespace. A namespace outlives its name
// while processes are in it, and its links would outlive it too.
func (n *node) remove() error {
	if n.handle != nil {
		if links, err := n.handle.LinkList(); err == nil {
			for _, link := range links {
				if link.Type() == "veth" || link.Type() == "bridge" {
					n.handle.LinkDel(link) // fails for the second end of a pair
				}
			}
		}
		n.handle.Close()
	}
	n.ns.Close()
	return removeNamespace(n.name)
}

// Dir returns a directory under /run, accessible to root only, that lives as
// long as the process has a lab: the place for sockets that ranks share.
func (l *Lab) Dir() string { return recordDir(os.Getpid()) }
