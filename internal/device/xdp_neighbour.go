package device

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/mpierr"
)

const (
	defaultPatience = 5 * time.Second        // as long as a silent peer is waited for
	lookPause       = 10 * time.Millisecond  // between looks at the kernel's neighbour table
	solicitPause    = 250 * time.Millisecond // between attempts to make the kernel ask
	discardPort     = 9                      // nobody listens there; see solicit
	usableNeighbour = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT
)

// errNeighbourTable says that the kernel keeps no entry for an address that it was
// just made to ask for.
var errNeighbourTable = errors.New("the kernel has no room for another neighbour (`dmesg` says \"neighbour: table overflow\"): " +
	"raise the sysctls net.ipv4.neigh.default.gc_thresh3 or net.ipv6.neigh.default.gc_thresh3, " +
	"which count the neighbours of all network namespaces together")

// classOfNeighbour tells a full table, which says nothing about the peer, from a peer
// that does not answer.
func classOfNeighbour(err error) mpierr.Class {
	switch {
	case errors.Is(err, errNeighbourTable):
		return mpierr.NoMem
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return mpierr.Timeout
	}
	return mpierr.Unsupported
}

// openNeighbours opens the socket by which the kernel's neighbour table is read.
func (x *XDP) openNeighbours() error {
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err == nil {
		x.neighbours = &nl.SocketHandle{Socket: s}
	}
	return err
}

// neighbour returns the link address of hop, which is on the link, on the way to ip.
// The kernel repeats a lost request after a second, and gives up after three. It is
// made to ask again for as long as the device has patience.
func (x *XDP) neighbour(ctx context.Context, hop, ip netip.Addr) ([6]byte, error) {
	tick := time.NewTicker(lookPause)
	defer tick.Stop()
	var sendErr error
	for begun, asked := time.Now(), (time.Time{}); ; {
		state, mac, err := x.lookUpNeighbour(hop)
		if err != nil || state&usableNeighbour != 0 {
			return mac, err
		}
		now := time.Now()
		switch {
		case now.Sub(begun) >= x.patience:
			return mac, x.silent(hop, state, sendErr)
		case now.Sub(asked) >= solicitPause:
			sendErr, asked = x.solicit(ip), now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return mac, fmt.Errorf("%v has not answered on interface %s yet: %w", hop, x.ifi.Name, ctx.Err())
		}
	}
}

// silent says why the link address of hop is not known.
func (x *XDP) silent(hop netip.Addr, state int, sendErr error) error {
	if state == netlink.NUD_NONE && sendErr == nil {
		return fmt.Errorf("the link address of %v on interface %s is not known: %w", hop, x.ifi.Name, errNeighbourTable)
	}
	err := fmt.Errorf("%v does not answer on interface %s (`ip neighbour show dev %s`): check that it is up and on the same link",
		hop, x.ifi.Name, x.ifi.Name)
	if sendErr != nil {
		err = fmt.Errorf("%w; asking for it failed: %w", err, sendErr)
	}
	return err
}

// lookUpNeighbour looks hop up in the kernel's neighbour table. State is 0 if there is
// no entry, and the link address is known in the states of usableNeighbour.
func (x *XDP) lookUpNeighbour(hop netip.Addr) (state int, mac [6]byte, err error) {
	family := unix.AF_INET6
	if hop.Is4() {
		family = unix.AF_INET
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, 0)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: x.neighbours}
	req.AddData(&netlink.Ndmsg{Family: uint8(family), Index: uint32(x.ifi.Index)})
	req.AddData(nl.NewRtAttr(netlink.NDA_DST, hop.AsSlice()))
	answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	switch {
	case errors.Is(err, unix.ENOENT) || err == nil && len(answers) == 0:
		return 0, mac, nil
	case err != nil:
		return 0, mac, fmt.Errorf("look %v up among the neighbours of interface %s: %w", hop, x.ifi.Name, err)
	}
	n, err := netlink.NeighDeserialize(answers[0])
	if err != nil {
		return 0, mac, fmt.Errorf("read the neighbour %v of interface %s: %w", hop, x.ifi.Name, err)
	}
	if len(n.HardwareAddr) != len(mac) {
		return n.State &^ usableNeighbour, mac, nil
	}
	return n.State, [6]byte(n.HardwareAddr), nil
}

// solicit makes the kernel ask for the link address of the next hop to ip, by
// sending a datagram that nobody wants.
func (x *XDP) solicit(ip netip.Addr) error {
	to, err := rawAddress(netip.AddrPortFrom(zoned(ip, x.ifi.Index), discardPort))
	if err != nil {
		return err
	}
	return unix.Sendto(x.stack.fd, []byte{0}, unix.MSG_DONTWAIT, to)
}
