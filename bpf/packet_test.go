package bpf_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// packet describes a frame; its zero value with a payload is a plain UDP frame
// over IPv4 to portBase.
type packet struct {
	vlans    []uint16  // tag protocols, outermost first
	ids      [3]uint16 // of the VLANs; 0: the tag has a priority alone
	v6       bool
	to       string // address; "": own4 or own6
	options  int    // bytes of IPv4 options
	fragment uint16
	proto    byte // 0: UDP
	port     uint16
	udpLen   int // added to the true UDP length
	ipLen    int // added to the true IP length
	pad      int // bytes after the datagram
	payload  []byte
}

// Where packets come from.
var from4, from6 = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::a00:1")

const fromPort = 9999

// bytes builds the frame.
func (p packet) bytes() []byte {
	be := binary.BigEndian
	b := make([]byte, 12, 256)
	for i, v := range p.vlans {
		b = be.AppendUint16(b, v)
		b = be.AppendUint16(b, 0xf000|p.ids[i])
	}
	proto, udpLen := p.proto, 8+len(p.payload)
	if proto == 0 {
		proto = unix.IPPROTO_UDP
	}
	to := own4
	if p.v6 {
		to = own6
	}
	if p.to != "" {
		to = netip.MustParseAddr(p.to)
	}
	if p.v6 {
		b = be.AppendUint16(b, unix.ETH_P_IPV6)
		b = be.AppendUint32(b, 6<<28|0xb8<<20|0x12345)
		b = be.AppendUint16(b, uint16(udpLen+p.ipLen))
		b = append(b, proto, 9)
		b = append(b, from6.AsSlice()...)
	} else {
		b = be.AppendUint16(b, unix.ETH_P_IP)
		b = append(b, byte(0x40|(20+p.options)/4), 0xb8)
		b = be.AppendUint16(b, uint16(20+p.options+udpLen+p.ipLen))
		b = append(b, 0, 0)
		b = be.AppendUint16(b, p.fragment)
		b = append(b, 9, proto, 0, 0)
		b = append(b, from4.AsSlice()...)
	}
	b = append(b, to.AsSlice()...)
	if !p.v6 {
		b = append(b, make([]byte, p.options)...)
	}
	port := p.port
	if port == 0 {
		port = portBase
	}
	b = be.AppendUint16(b, fromPort)
	b = be.AppendUint16(b, port)
	b = be.AppendUint16(b, uint16(udpLen+p.udpLen))
	b = append(b, 0, 0)
	b = append(b, p.payload...)
	return append(b, make([]byte, p.pad)...)
}

// shapes are the kinds of frames whose requests the program executes.
var shapes = []packet{
	{},
	{vlans: []uint16{unix.ETH_P_8021Q}},
	{vlans: []uint16{unix.ETH_P_8021AD, unix.ETH_P_8021Q}},
	{v6: true},
	{v6: true, vlans: []uint16{unix.ETH_P_8021Q}},
	{v6: true, vlans: []uint16{unix.ETH_P_8021AD, unix.ETH_P_8021Q}},
}

func (p packet) String() string { return fmt.Sprintf("%d VLAN tags, IPv6 %v", len(p.vlans), p.v6) }

// parts is a frame taken apart, whose IP header has no options.
type parts struct {
	link, ip, udp, payload, rest []byte // rest: behind the datagram
	v6                           bool
}

// parts takes a frame apart that has the headers of p.
func (p packet) parts(frame []byte) parts {
	ip := 14 + 4*len(p.vlans)
	udp := ip + 20
	if p.v6 {
		udp += 20
	}
	end := min(len(frame), udp+int(binary.BigEndian.Uint16(frame[udp+4:])))
	return parts{frame[:ip], frame[ip:udp], frame[udp : udp+8], frame[udp+8 : end], frame[end:], p.v6}
}

// addresses are both addresses of the frame.
func (f parts) addresses() []byte {
	if f.v6 {
		return f.ip[8:40]
	}
	return f.ip[12:20]
}

func (f parts) checksum() uint16 { return binary.BigEndian.Uint16(f.udp[6:]) }

// pseudo is the sum of the pseudo header, and whole that of all that the checksum covers.
func (f parts) pseudo() uint16 {
	return onesSum(f.addresses(), []byte{0, unix.IPPROTO_UDP}, f.udp[4:6])
}
func (f parts) whole() uint16 {
	return onesSum(f.addresses(), []byte{0, unix.IPPROTO_UDP}, f.udp[4:6], f.udp, f.payload)
}

// onesSum is the sum of 16-bit words, in the arithmetic of checksums.
func onesSum(b ...[]byte) uint16 {
	sum := uint32(0)
	for _, part := range b {
		for ; len(part) > 1; part = part[2:] {
			sum += uint32(binary.BigEndian.Uint16(part))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// message is a frame's payload: a header, and the body of a hello of the job behind it.
func message(kind wire.Kind, id uint64) []byte {
	b := make([]byte, wire.HeaderLen+wire.HelloLen)
	(&wire.Hello{Job: job}).Encode(b[wire.HeaderLen:])
	(&wire.Header{Kind: kind, Session: id}).Encode(b)
	return b
}

// helloOf is the payload of a hello of a job.
func helloOf(id uint64) []byte {
	b := message(wire.KindHello, 0)
	binary.LittleEndian.PutUint64(b[wire.HeaderLen:], id)
	return b
}

// changed returns b with the byte at offset at replaced.
func changed(b []byte, at int, to byte) []byte {
	c := append([]byte(nil), b...)
	c[at] = to
	return c
}
