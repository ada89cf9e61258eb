package device

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/userspace"
)

// forgedMTU is the path MTU that a stranger claims: the least of each family.
func forgedMTU(v6 bool) uint16 {
	if v6 {
		return 1280
	}
	return 576
}

// tooBig returns the ICMP message of a router that could not forward a full datagram
// from one address to another.
func tooBig(from, to netip.AddrPort) []byte {
	mtu := forgedMTU(from.Addr().Is6())
	udp := binary.BigEndian.AppendUint16(nil, from.Port())
	udp = binary.BigEndian.AppendUint16(udp, to.Port())
	udp = append(udp, 5, 0, 0, 0) // the length, and no checksum
	addresses := append(from.Addr().AsSlice(), to.Addr().AsSlice()...)
	if from.Addr().Is6() {
		m := []byte{2, 0, 0, 0, 0, 0, byte(mtu >> 8), byte(mtu)} // the kernel writes the checksum
		m = append(m, 0x60, 0, 0, 0, 5, 0, protocolUDP, 64)
		return append(append(m, addresses...), udp...)
	}
	m := []byte{3, 4, 0, 0, 0, 0, byte(mtu >> 8), byte(mtu)}
	ip := append([]byte{0x45, 0, 5, 20, 0, 1, 0x40, 0, 64, protocolUDP, 0, 0}, addresses...)
	binary.BigEndian.PutUint16(ip[10:], ^slowSum(ip))
	m = append(append(m, ip...), udp...)
	binary.BigEndian.PutUint16(m[2:], ^slowSum(m))
	return m
}

// sendICMP sends a message from rank's network namespace.
func sendICMP(t *testing.T, l *netlab.Lab, rank int, to netip.Addr, message []byte) {
	t.Helper()
	family, protocol := unix.AF_INET, unix.IPPROTO_ICMP
	if to.Is6() {
		family, protocol = unix.AF_INET6, unix.IPPROTO_ICMPV6
	}
	err := l.Do(rank, func() error {
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		raw, err := rawAddress(netip.AddrPortFrom(to, 0))
		if err != nil {
			return err
		}
		return unix.Sendto(fd, message, 0, raw)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Somebody who knows the addresses and ports of two ranks cannot cut their frames short.
func TestUDPIgnoresForgedPathMTU(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2, MTU: 1500})
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("IPv6 %v", v6), func(t *testing.T) {
			a, b := openEnd(t, l, 0, userspace.UDP, v6), openEnd(t, l, 1, userspace.UDP, v6)
			to, back := a.path(b.dev.Facts().Local), b.path(a.dev.Facts().Local)
			full := message(wire.KindData, a.dev.Facts().Slab.MaxPayload)
			for range 3 {
				sendICMP(t, l, 1, a.dev.Facts().Local.Addr(), tooBig(a.dev.Facts().Local, b.dev.Facts().Local))
				m := message(wire.KindData, 100) // behind the forged message
				b.send(back, m)
				sameMessages(t, a.receive(1), [][]byte{m})
				a.send(to, full)
				if s := a.stats(); s.TxDropped+s.TxErrors > 0 {
					t.Fatalf("a full frame was not sent: %+v", s)
				}
				sameMessages(t, b.receive(1), [][]byte{full})
			}
		})
	}
}
