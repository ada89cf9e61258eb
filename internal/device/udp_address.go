package device

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// sockaddr is the kernel's struct sockaddr_in or sockaddr_in6, the rest zero.
type sockaddr [unix.SizeofSockaddrInet6]byte

// encode returns the kernel's form of addr.
func encode(addr netip.AddrPort) (sa sockaddr, err error) {
	family, ip := uint16(unix.AF_INET6), addr.Addr()
	switch {
	case ip.Is4():
		family = unix.AF_INET
		copy(sa[4:8], ip.AsSlice())
	case ip.Is6() && !ip.Is4In6():
		copy(sa[8:24], ip.AsSlice())
		zone, err := zoneIndex(ip.Zone())
		if err != nil {
			return sa, err
		}
		binary.NativeEndian.PutUint32(sa[24:], zone)
	default:
		return sa, fmt.Errorf("%v is neither an IPv4 nor an IPv6 address", addr)
	}
	binary.NativeEndian.PutUint16(sa[0:], family)
	binary.BigEndian.PutUint16(sa[2:], addr.Port())
	return sa, nil
}

// addr returns the address that encode has encoded.
func (sa *sockaddr) addr() netip.AddrPort {
	port := binary.BigEndian.Uint16(sa[2:])
	if binary.NativeEndian.Uint16(sa[0:]) == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(sa[4:8])), port)
	}
	ip := netip.AddrFrom16([16]byte(sa[8:24]))
	if zone := binary.NativeEndian.Uint32(sa[24:]); zone != 0 {
		ip = ip.WithZone(strconv.FormatUint(uint64(zone), 10))
	}
	return netip.AddrPortFrom(ip, port)
}

// clean clears what distinguishes datagrams of one sender and is not part of
// its address: the flow label, and for IPv4 whatever lies behind the address.
func (sa *sockaddr) clean() {
	if binary.NativeEndian.Uint16(sa[0:]) == unix.AF_INET {
		clear(sa[8:])
	} else {
		clear(sa[4:8])
	}
}

// zoneIndex returns the index of the interface that an IPv6 zone names.
func zoneIndex(zone string) (uint32, error) {
	if zone == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(zone, 10, 31); err == nil {
		return uint32(n), nil
	}
	ifi, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, fmt.Errorf("IPv6 zone %q: %w", zone, err)
	}
	return uint32(ifi.Index), nil
}

// rawAddress returns addr in the form that unix.Bind takes.
func rawAddress(addr netip.AddrPort) (unix.Sockaddr, error) {
	if addr.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}, nil
	}
	zone, err := zoneIndex(addr.Addr().Zone())
	return &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16(), ZoneId: zone}, err
}

// udpSocket makes a nonblocking UDP socket bound to addr and returns it with its
// port, which the system chooses if that of addr is 0.
func udpSocket(addr netip.AddrPort) (fd int, port uint16, err error) {
	raw, err := rawAddress(addr)
	if err != nil {
		return -1, 0, err
	}
	family := unix.AF_INET
	if addr.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, 0, fmt.Errorf("make a UDP socket: %w", err)
	}
	if err = unix.Bind(fd, raw); err == nil {
		if raw, err = unix.Getsockname(fd); err == nil {
			switch a := raw.(type) {
			case *unix.SockaddrInet4:
				return fd, uint16(a.Port), nil
			case *unix.SockaddrInet6:
				return fd, uint16(a.Port), nil
			}
			err = unix.EAFNOSUPPORT
		}
	}
	_ = unix.Close(fd)
	return -1, 0, explainBind(addr, err)
}

// explainBind says what to do about an error of binding a UDP socket to addr.
func explainBind(addr netip.AddrPort, err error) error {
	switch err {
	case unix.EADDRINUSE:
		return fmt.Errorf("another process has UDP port %d of %v: choose another port, or 0 for any: %w", addr.Port(), addr.Addr(), err)
	case unix.EADDRNOTAVAIL:
		return fmt.Errorf("%v is not an address of this machine, or a tentative one (`ip address` lists those it has): %w", addr.Addr(), err)
	case unix.EACCES:
		return fmt.Errorf("UDP port %d is reserved for privileged processes: choose one from 1024: %w", addr.Port(), err)
	}
	return fmt.Errorf("bind to UDP address %v: %w", addr, err)
}
