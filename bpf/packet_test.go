package bpf_test

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// packet describes a frame; its zero value with a payload is a plain UDP frame
// over IPv4 to portBase.
type packet struct {
	vlans    []uint16 // tag protocols, outermost first
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

// bytes builds the frame.
func (p packet) bytes() []byte {
	be := binary.BigEndian
	b := make([]byte, 12, 256)
	for _, v := range p.vlans {
		b = be.AppendUint16(b, v)
		b = be.AppendUint16(b, 7)
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
		b = be.AppendUint32(b, 6<<28)
		b = be.AppendUint16(b, uint16(udpLen+p.ipLen))
		b = append(b, proto, 64)
		b = append(b, make([]byte, 16)...)
	} else {
		b = be.AppendUint16(b, unix.ETH_P_IP)
		b = append(b, byte(0x40|(20+p.options)/4), 0)
		b = be.AppendUint16(b, uint16(20+p.options+udpLen+p.ipLen))
		b = append(b, 0, 0)
		b = be.AppendUint16(b, p.fragment)
		b = append(b, 64, proto, 0, 0, 10, 0, 0, 1)
	}
	b = append(b, to.AsSlice()...)
	if !p.v6 {
		b = append(b, make([]byte, p.options)...)
	}
	port := p.port
	if port == 0 {
		port = portBase
	}
	b = be.AppendUint16(b, 9999)
	b = be.AppendUint16(b, port)
	b = be.AppendUint16(b, uint16(udpLen+p.udpLen))
	b = append(b, 0, 0)
	b = append(b, p.payload...)
	return append(b, make([]byte, p.pad)...)
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
