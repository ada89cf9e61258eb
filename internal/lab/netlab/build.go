package netlab

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	readyTimeout = time.Minute // which only a hang reaches: a busy kernel takes seconds to bring links up
	readyPoll    = time.Millisecond
)

func (l *Lab) build() error {
	for rank := range l.config.Ranks {
		if rank%l.config.RanksPerHost != 0 {
			l.nodes = append(l.nodes, l.nodes[rank-1])
			continue
		}
		n, err := l.addNode(fmt.Sprint(rank))
		if err != nil {
			return err
		}
		l.nodes = append(l.nodes, n)
	}
	if err := l.connect(); err != nil {
		return err
	}
	if err := l.ports(l.configure); err != nil {
		return err
	}
	if err := l.ports(l.introduce); err != nil {
		return err
	}
	return l.ports(l.awaitReady)
}

// addNode makes a namespace, quiet and with its loopback interface up.
func (l *Lab) addNode(suffix string) (*node, error) {
	n := &node{name: l.name + suffix}
	var err error
	if n.ns, err = newNamespace(n.name, prepare); err != nil {
		return nil, err
	}
	if n.handle, err = netlink.NewHandleAt(n.ns, unix.NETLINK_ROUTE); err == nil {
		err = n.up("lo")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("namespace %s: %w", n.name, err), n.remove())
	}
	return n, nil
}

// prepare sets a new namespace up, on a thread within it.
func prepare() error {
	// With several interfaces on one link, each answers for its own address only.
	if err := os.WriteFile("/proc/sys/net/ipv4/conf/all/arp_ignore", []byte("1"), 0); err != nil {
		return err
	}
	return silenceIPv6()
}

// silenceIPv6 keeps the calling thread's namespace from sending anything of its
// own accord, and makes addresses usable without duplicate detection.
func silenceIPv6() error {
	for name, value := range map[string]string{
		"disable_ipv6": "0", "accept_dad": "0", "dad_transmits": "0", "accept_ra": "0", "autoconf": "0",
		"router_solicitations": "0", "addr_gen_mode": "1", // 1: no link-local address
	} {
		for _, scope := range []string{"all", "default"} {
			err := os.WriteFile("/proc/sys/net/ipv6/conf/"+scope+"/"+name, []byte(value), 0)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// connect makes the links between the namespaces.
func (l *Lab) connect() error {
	var hosts []int // the first rank of each namespace
	for rank := 0; rank < len(l.nodes); rank += l.config.RanksPerHost {
		hosts = append(hosts, rank)
	}
	switch {
	case len(l.nodes) == 1 || l.config.Share && len(hosts) == 1:
		if err := l.addVeth(l.nodes[0], l.Interface(0), mac(0, 0), l.nodes[0], "peer", mac(1, 0)); err != nil {
			return err
		}
		return l.nodes[0].up("peer")
	case len(hosts) == 2 && (l.config.Share || l.config.RanksPerHost == 1):
		a, b := hosts[0], hosts[1]
		return l.addVeth(l.nodes[a], l.Interface(a), mac(0, a), l.nodes[b], l.Interface(b), mac(0, b))
	}
	var err error
	if l.bridge, err = l.addNode("br"); err != nil {
		return err
	}
	bridge, err := l.addBridge()
	if err != nil {
		return fmt.Errorf("bridge: %w", err)
	}
	return l.ports(func(rank int, n *node) error {
		name := l.Interface(rank)
		if err := l.addVeth(n, name, mac(0, rank), l.bridge, name, mac(1, rank)); err != nil {
			return err
		}
		if err := l.bridge.enslave(name, bridge); err != nil {
			return fmt.Errorf("port %s of the bridge: %w", name, err)
		}
		return nil
	})
}

// addVeth makes a pair with one end in a and the other in b.
func (l *Lab) addVeth(a *node, aName string, aMAC net.HardwareAddr, b *node, bName string, bMAC net.HardwareAddr) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = aName, aMAC
	attrs.MTU = l.config.MTU
	attrs.NumTxQueues, attrs.NumRxQueues = l.config.Queues, l.config.Queues
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerHardwareAddr = bName, bMAC
	veth.PeerMTU = uint32(l.config.MTU)
	veth.PeerNumTxQueues, veth.PeerNumRxQueues = uint32(l.config.Queues), uint32(l.config.Queues)
	veth.PeerNamespace = netlink.NsFd(int(b.ns))
	if err := a.handle.LinkAdd(veth); err != nil {
		return fmt.Errorf("veth pair %s, %s: %w", aName, bName, err)
	}
	return nil
}

// addBridge makes a bridge that floods multicast: neighbour discovery has to
// work without a multicast querier.
func (l *Lab) addBridge() (*netlink.Bridge, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = "bridge", mac(2, 0), l.config.MTU
	snooping := false
	bridge := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}
	if err := l.bridge.handle.LinkAdd(bridge); err != nil {
		return nil, err
	}
	return bridge, l.bridge.up("bridge")
}

func (n *node) enslave(name string, bridge *netlink.Bridge) error {
	link, err := n.handle.LinkByName(name)
	if err != nil {
		return err
	}
	if err := n.handle.LinkSetMaster(link, bridge); err != nil {
		return err
	}
	return n.handle.LinkSetUp(link)
}

func (n *node) up(name string) error {
	link, err := n.handle.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	if err := n.handle.LinkSetUp(link); err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	return nil
}

// configure gives rank's interface its addresses and sets it up.
func (l *Lab) configure(rank int, n *node) error {
	link, err := n.handle.LinkByName(l.Interface(rank))
	if err != nil {
		return err
	}
	prefix := 24
	if l.config.Ranks > smallNetwork {
		prefix = 16
	}
	addrs := []*net.IPNet{{IP: l.Addr(rank).AsSlice(), Mask: net.CIDRMask(prefix, 32)}}
	v4 := &netlink.Addr{IPNet: &net.IPNet{IP: l.Addr(rank).AsSlice(), Mask: net.CIDRMask(prefix, 32)}}
	if err := n.handle.AddrAdd(link, v4); err != nil {
		return fmt.Errorf("address %s: %w", v4.IPNet, err)
	}
	if hasIPv6() {
		v6 := &netlink.Addr{
			IPNet: &net.IPNet{IP: l.Addr6(rank).AsSlice(), Mask: net.CIDRMask(64, 128)},
			Flags: unix.IFA_F_NODAD,
		}
		if err := n.handle.AddrAdd(link, v6); err != nil {
			return fmt.Errorf("address %s: %w", v6.IPNet, err)
		}
		addrs = append(addrs, v6.IPNet)
	}
	if err := n.up(l.Interface(rank)); err != nil || l.config.Share || l.config.RanksPerHost == 1 {
		return err
	}
	for _, a := range addrs {
		if err := n.routeFrom(a, link, firstTable+rank); err != nil {
			return fmt.Errorf("route from %s: %w", a, err)
		}
	}
	return nil
}

// firstTable is the routing table of rank 0 where namespaces have several ranks.
const firstTable = 1000

// routeFrom has packets from an address leave through link: without, the first
// interface of the network would have them all.
func (n *node) routeFrom(a *net.IPNet, link netlink.Link, table int) error {
	bits := 8 * len(a.IP)
	_, network, err := net.ParseCIDR(a.String())
	if err != nil {
		return err
	}
	rule := netlink.NewRule()
	rule.Src, rule.Table = &net.IPNet{IP: a.IP, Mask: net.CIDRMask(bits, bits)}, table
	if bits == 32 {
		rule.Family = netlink.FAMILY_V4
	} else {
		rule.Family = netlink.FAMILY_V6
	}
	if err := n.handle.RuleAdd(rule); err != nil {
		return err
	}
	return n.handle.RouteAdd(&netlink.Route{Dst: network, LinkIndex: link.Attrs().Index, Table: table, Src: a.IP})
}

// awaitReady blocks until rank's interface has a carrier and its addresses are
// in use.
func (l *Lab) awaitReady(rank int, n *node) error {
	return n.awaitUp(l.Interface(rank), func() bool { return n.owns(l.Addr(rank)) && (!hasIPv6() || n.owns(l.Addr6(rank))) })
}

// awaitUp blocks until an interface carries traffic and ready says so, too.
func (n *node) awaitUp(name string, ready func() bool) error {
	for deadline := time.Now().Add(readyTimeout); ; time.Sleep(readyPoll) {
		link, err := n.handle.LinkByName(name)
		if err != nil {
			return fmt.Errorf("interface %s: %w", name, err)
		}
		if link.Attrs().OperState == netlink.OperUp && ready() {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("interface %s is not ready after %v: its state is %v", name, readyTimeout, link.Attrs().OperState)
		}
	}
}

// owns reports whether the namespace takes packets to addr. An IPv6 address is
// listed before that: the kernel adds the route later, from a work queue.
func (n *node) owns(addr netip.Addr) bool {
	routes, err := n.handle.RouteGet(addr.AsSlice())
	return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
}

// hasIPv6 reports whether the kernel speaks IPv6.
func hasIPv6() bool {
	_, err := os.Stat("/proc/sys/net/ipv6")
	return err == nil
}
