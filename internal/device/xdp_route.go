package device

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/mpierr"
)

// Path implements Device. It asks the kernel for the route and for the link
// address of the next hop, and blocks while the kernel has to ask the network
// first. Calling it again follows a change of either.
func (x *XDP) Path(ctx context.Context, addr netip.AddrPort) (PathID, error) {
	ip := addr.Addr()
	if ip.Is4() != x.local.addr.Addr().Is4() || addr.Port() == 0 || ip.IsUnspecified() || ip.IsMulticast() {
		return NoPath, pathError(addr, mpierr.Arg, notOfRank(addr, x.local.addr))
	}
	hop, err := x.nextHop(ip)
	if errors.Is(err, errLocal) {
		return x.pathLocal(addr)
	}
	if err != nil {
		return NoPath, pathError(addr, mpierr.Unsupported, err)
	}
	mac, err := x.neighbour(ctx, hop, ip)
	if err != nil {
		return NoPath, pathError(addr, classOfNeighbour(err), err)
	}
	path := x.pathTo(endpoint{mac: mac, addr: addr}, x.queueFor(addr), maxPaths)
	id := x.paths.intern(&path, maxPaths)
	if id == NoPath {
		return NoPath, pathError(addr, mpierr.NoMem, errTooManyPaths)
	}
	return id, nil
}

// Peer implements Device.
func (x *XDP) Peer(id PathID) netip.AddrPort {
	if id >= localPath {
		return x.stack.peer(id - localPath)
	}
	return x.paths.get(id).peer()
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
