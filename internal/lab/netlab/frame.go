package netlab

import (
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"
)

// Frame is an Ethernet frame on its way through a relay. With UDP segmentation offload it has
// several datagrams joined, as the rank's kernel sent them.
type Frame struct {
	// ToRank is set of frames to the relay's rank, and not set of frames from it.
	ToRank bool

	data []byte // a struct virtio_net_hdr, and the frame
}

// Where things are in the data of a frame.
const (
	vnetLen     = 10
	ethernetLen = 14
	vnetGSO     = 1 // the type in a struct virtio_net_hdr
	vnetSize    = 4 // bytes of each datagram's payload
	typeAt      = vnetLen + 12
	ipAt        = vnetLen + ethernetLen
	udpAt       = ipAt + 20
	payloadAt   = udpAt + 8
	plainIPv4   = 0x45 // without options
)

func newFrame(data []byte, toRank bool) *Frame { return &Frame{toRank, slices.Clone(data)} }

// isUDP reports whether a frame is IPv4 without options, and UDP from a port or to it.
func (f *Frame) isUDP(port uint16) bool {
	b, be := f.data, binary.BigEndian
	return len(b) >= payloadAt && be.Uint16(b[typeAt:]) == unix.ETH_P_IP && b[ipAt] == plainIPv4 && b[ipAt+9] == unix.IPPROTO_UDP &&
		be.Uint16(b[ipAt+6:])&0x3fff == 0 && // no fragment
		(be.Uint16(b[udpAt:]) == port || be.Uint16(b[udpAt+2:]) == port) && be.Uint16(b[udpAt+4:]) >= 8 && udpAt+int(be.Uint16(b[udpAt+4:])) <= len(b)
}

// Origin returns the rank that has the address from which the frame comes.
func (f *Frame) Origin() int { return int(binary.BigEndian.Uint16(f.data[ipAt+14:])) - 1 }

// Target returns the rank that has the address to which the frame goes.
func (f *Frame) Target() int { return int(binary.BigEndian.Uint16(f.data[ipAt+18:])) - 1 }

// Payloads returns the payloads of the frame's datagrams. They are its own memory, and a change
// shows in the frame.
func (f *Frame) Payloads() (all [][]byte) {
	rest := f.data[payloadAt : udpAt+int(binary.BigEndian.Uint16(f.data[udpAt+4:]))]
	each := len(rest)
	if f.data[vnetGSO] != 0 {
		each = int(binary.NativeEndian.Uint16(f.data[vnetSize:]))
	}
	for len(rest) > each && each > 0 {
		all, rest = append(all, rest[:each:each]), rest[each:]
	}
	return append(all, rest)
}

// With returns a frame like f with one datagram that has another payload. It has no UDP
// checksum, so that no kernel drops it for that.
func (f *Frame) With(payload []byte) *Frame {
	w := &Frame{f.ToRank, append(slices.Clone(f.data[:payloadAt]), payload...)}
	clear(w.data[:vnetLen])
	be, ip, udp := binary.BigEndian, w.data[ipAt:udpAt], w.data[udpAt:payloadAt]
	be.PutUint16(ip[2:], uint16(20+8+len(payload)))
	be.PutUint16(ip[10:], 0)
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(be.Uint16(ip[i:]))
	}
	sum = sum>>16 + sum&0xffff
	be.PutUint16(ip[10:], ^uint16(sum>>16+sum))
	be.PutUint16(udp[4:], uint16(8+len(payload)))
	be.PutUint16(udp[6:], 0)
	return w
}

// Reflected returns the frame as one to its sender: in the other direction, with the addresses
// of its target and its sender exchanged.
func (f *Frame) Reflected() *Frame {
	r := newFrame(f.data, !f.ToRank)
	for _, pair := range []struct{ a, b, n int }{{vnetLen, vnetLen + 6, 6}, {ipAt + 12, ipAt + 16, 4}, {udpAt, udpAt + 2, 2}} {
		copy(r.data[pair.a:], f.data[pair.b:][:pair.n])
		copy(r.data[pair.b:], f.data[pair.a:][:pair.n])
	}
	return r
}
