package netlab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// maxIntroduced is the most ranks whose link addresses all of them are told. The
// entries grow with the square of that number, and take some 60 MB by then.
const maxIntroduced = 256

// introduce enters the link addresses of all other ranks in the neighbour table of
// rank's interface, for good. The kernel keeps at most about a thousand neighbours that
// it asked for, of all namespaces together: 33 ranks that all talk to all exceed that,
// and their packets are dropped. Entries for good do not count.
func (l *Lab) introduce(rank int, n *node) error {
	if l.config.Ranks > maxIntroduced {
		return nil
	}
	link, err := n.handle.LinkByName(l.Interface(rank))
	if err != nil {
		return err
	}
	var requests []byte
	for other, host := range l.nodes {
		if host == n || l.port(other) != other { // its addresses are local ones, or another's
			continue
		}
		requests = append(requests, newNeighbour(link.Attrs().Index, l.Addr(other), l.MAC(other))...)
		if hasIPv6() {
			requests = append(requests, newNeighbour(link.Attrs().Index, l.Addr6(other), l.MAC(other))...)
		}
	}
	if len(requests) == 0 {
		return nil
	}
	if err := within(n.ns, func() error { return request(requests) }); err != nil {
		return fmt.Errorf("enter the link addresses of the other ranks: %w", err)
	}
	return nil
}

// newNeighbour returns the netlink message that enters one neighbour for good.
func newNeighbour(ifindex int, ip netip.Addr, mac net.HardwareAddr) []byte {
	family := unix.AF_INET6
	if ip.Is4() {
		family = unix.AF_INET
	}
	req := nl.NewNetlinkRequest(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE)
	req.AddData(&netlink.Ndmsg{Family: uint8(family), Index: uint32(ifindex), State: netlink.NUD_PERMANENT})
	req.AddData(nl.NewRtAttr(netlink.NDA_DST, ip.AsSlice()))
	req.AddData(nl.NewRtAttr(netlink.NDA_LLADDR, mac))
	return req.Serialize()
}

// request hands the kernel many netlink messages in one system call. By its end they
// are carried out, and those that failed have been answered.
func request(messages []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	var answer [256]byte
	n, _, err := unix.Recvfrom(fd, answer[:], unix.MSG_DONTWAIT)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return nil
	case err != nil:
		return err
	case n < unix.SizeofNlMsgerr:
		return fmt.Errorf("the kernel's answer has %d bytes", n)
	}
	return unix.Errno(-int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])))
}
