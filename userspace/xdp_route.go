package userspace

import (
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/mpierr"
)

const (
	discardPort       = 9                     // nobody listens there; see solicit
	neighbourAttempts = 100                   // looks at the neighbour table
	neighbourPause    = 10 * time.Millisecond // between looks: a second in all
	solicitEvery      = 25                    // looks between attempts to make the kernel ask
	usableNeighbour   = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT
)

// Path implements Device. It asks the kernel for the route and for the link
// address of the next hop, and blocks for up to a second if the kernel has to
// ask the network first. Calling it again follows a change of either.
func (x *XDP) Path(addr netip.AddrPort) (PathID, error) {
	ip := addr.Addr()
	if ip.Is4() != x.local.addr.Addr().Is4() || addr.Port() == 0 || ip.IsUnspecified() || ip.IsMulticast() {
		return NoPath, pathError(addr, mpierr.Arg, fmt.Errorf("it is not of the same kind as the device's address %v", x.local.addr))
	}
	hop, err := x.nextHop(ip)
	if errors.Is(err, errLocal) {
		return x.pathLocal(addr)
	}
	if err != nil {
		return NoPath, pathError(addr, mpierr.Unsupported, err)
	}
	mac, err := x.neighbour(hop, ip)
	if err != nil {
		return NoPath, pathError(addr, mpierr.Unsupported, err)
	}
	path := newPath(x.local, endpoint{mac: mac, addr: addr}, x.queueFor(addr))
	id := x.paths.intern(&path, maxPaths)
	if id == NoPath {
		return NoPath, pathError(addr, mpierr.NoMem, errTooManyPaths)
	}
	return id, nil
}

var errLocal = errors.New("it is an address of this machine, which frames from an interface do not reach")

// queueFor spreads the peers over the queues that can send.
func (x *XDP) queueFor(addr netip.AddrPort) int {
	b := addr.Addr().As16()
	sum := crc32.ChecksumIEEE(append(b[:], byte(addr.Port()>>8), byte(addr.Port())))
	return int(sum % uint32(x.senders))
}

// nextHop returns the address whose link address frames to ip carry.
func (x *XDP) nextHop(ip netip.Addr) (netip.Addr, error) {
	options := netlink.RouteGetOptions{SrcAddr: x.local.addr.Addr().AsSlice()}
	if ip.IsLinkLocalUnicast() {
		options.OifIndex = x.ifi.Index // such an address has a meaning on a link only
	}
	routes, err := x.routes.RouteGetWithOptions(ip.AsSlice(), &options)
	if err != nil {
		return ip, fmt.Errorf("there is no route (`ip route get %v`): %w", ip, err)
	}
	if len(routes) == 0 {
		return ip, fmt.Errorf("there is no route (`ip route get %v`)", ip)
	}
	r := routes[0]
	switch {
	case r.Type == unix.RTN_LOCAL:
		return ip, errLocal
	case r.Type != unix.RTN_UNICAST:
		return ip, fmt.Errorf("the route is not to one machine (`ip route get %v`)", ip)
	case r.LinkIndex != x.ifi.Index:
		return ip, fmt.Errorf("the route leaves through interface #%d and not %s (`ip route get %v`): use that interface, or change the route",
			r.LinkIndex, x.ifi.Name, ip)
	}
	if gateway, ok := netip.AddrFromSlice(r.Gw); ok {
		return gateway.Unmap(), nil
	}
	if r.Via != nil {
		return ip, errors.New("the route's gateway is of another address family, which is not supported: use the UDP transport")
	}
	return ip, nil
}

// neighbour returns the link address of hop, which is on the link, on the way
// to ip.
func (x *XDP) neighbour(hop, ip netip.Addr) ([6]byte, error) {
	var sendErr error
	for i := range neighbourAttempts {
		mac, known, err := x.lookUpNeighbour(hop)
		if known || err != nil {
			return mac, err
		}
		if i%solicitEvery == 0 {
			sendErr = x.solicit(ip)
		}
		time.Sleep(neighbourPause)
	}
	err := fmt.Errorf("%v does not answer on interface %s (`ip neighbour show dev %s`): check that it is up and on the same link",
		hop, x.ifi.Name, x.ifi.Name)
	if sendErr != nil {
		err = fmt.Errorf("%w; asking for it failed: %w", err, sendErr)
	}
	return [6]byte{}, err
}

// lookUpNeighbour looks hop up in the kernel's neighbour table.
func (x *XDP) lookUpNeighbour(hop netip.Addr) (mac [6]byte, known bool, err error) {
	family := netlink.FAMILY_V6
	if hop.Is4() {
		family = netlink.FAMILY_V4
	}
	neighbours, err := x.routes.NeighList(x.ifi.Index, family)
	if err != nil {
		return mac, false, fmt.Errorf("list the neighbours of interface %s: %w", x.ifi.Name, err)
	}
	for _, n := range neighbours {
		ip, _ := netip.AddrFromSlice(n.IP)
		if ip.Unmap() == hop.WithZone("") && n.State&usableNeighbour != 0 && len(n.HardwareAddr) == len(mac) {
			return [6]byte(n.HardwareAddr), true, nil
		}
	}
	return mac, false, nil
}

// solicit makes the kernel ask for the link address of the next hop to ip, by
// sending a datagram that nobody wants.
func (x *XDP) solicit(ip netip.Addr) error {
	if ip.IsLinkLocalUnicast() && ip.Is6() {
		ip = ip.WithZone(x.ifi.Name)
	}
	to, err := rawAddress(netip.AddrPortFrom(ip, discardPort))
	if err != nil {
		return err
	}
	return unix.Sendto(x.stack.fd, []byte{0}, unix.MSG_DONTWAIT, to)
}
