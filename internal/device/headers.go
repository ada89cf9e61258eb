package device

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// Lengths of headers in bytes.
const (
	ethernetLen   = 14
	vlanLen       = 4
	ipv4Len       = 20
	ipv6Len       = 40
	udpLen        = 8
	maxHeadersLen = ethernetLen + ipv6Len + udpLen
)

const (
	etherTypeIPv4 = 0x0800
	etherTypeIPv6 = 0x86dd
	etherTypeVLAN = 0x8100 // IEEE 802.1Q
	etherTypeQinQ = 0x88a8 // IEEE 802.1ad
	vlanID        = 0xfff  // in a tag, whose rest is a priority
	protocolUDP   = 17
	hopLimit      = 64
	dontFragment  = 0x4000
	fragmentMask  = 0x3fff // more fragments, or an offset
)

// ipLen returns the length of the IP header of ip's family without options.
func ipLen(ip netip.Addr) int {
	if ip.Is4() {
		return ipv4Len
	}
	return ipv6Len
}

// endpoint is one end of a path on Ethernet.
type endpoint struct {
	mac  [6]byte
	addr netip.AddrPort
}

// xdpPath is what every frame on a path to a peer starts with, and the queue
// that it leaves through. It is comparable: equal paths are one path.
type xdpPath struct {
	headers [maxHeadersLen]byte // lengths and checksums are 0
	len     uint8               // of headers
	queue   uint8
	// sum is the one's complement sum of the constant fields that the checksum covers:
	// the IPv4 header; or IPv6's pseudo-header and the UDP header, without the lengths.
	sum uint16
	// stack is the path of the socket that joined frames go by, NoPath if there is none.
	stack PathID
}

// newPath returns the path from one endpoint to another, whose addresses are of
// one family.
func newPath(from, to endpoint, queue int) xdpPath {
	be := binary.BigEndian
	p := xdpPath{queue: uint8(queue), stack: NoPath}
	h := p.headers[:]
	copy(h[0:6], to.mac[:])
	copy(h[6:12], from.mac[:])
	ip := h[ethernetLen:]
	source, target := from.addr.Addr(), to.addr.Addr()
	var udp []byte
	if source.Is4() {
		be.PutUint16(h[12:], etherTypeIPv4)
		ip[0] = 4<<4 | ipv4Len/4
		be.PutUint16(ip[6:], dontFragment)
		ip[8], ip[9] = hopLimit, protocolUDP
		a, b := source.As4(), target.As4()
		copy(ip[12:], a[:])
		copy(ip[16:], b[:])
		p.sum = fold(sum(ip[:ipv4Len]))
		udp = ip[ipv4Len:]
	} else {
		be.PutUint16(h[12:], etherTypeIPv6)
		ip[0], ip[6], ip[7] = 6<<4, protocolUDP, hopLimit
		a, b := source.As16(), target.As16()
		copy(ip[8:], a[:])
		copy(ip[24:], b[:])
		udp = ip[ipv6Len:]
	}
	be.PutUint16(udp[0:], from.addr.Port())
	be.PutUint16(udp[2:], to.addr.Port())
	if source.Is6() {
		// The addresses, the ports and the protocol make up the pseudo-header.
		p.sum = fold(uint64(fold(sum(ip[8:ipv6Len+udpLen]))) + protocolUDP)
	}
	p.len = uint8(ethernetLen + ipLen(source) + udpLen)
	return p
}

// peer returns the address that the path leads to.
func (p *xdpPath) peer() netip.AddrPort {
	ip := p.headers[ethernetLen:p.len]
	udp := ip[len(ip)-udpLen:]
	target, _ := netip.AddrFromSlice(ip[12+4 : ipv4Len])
	if len(ip) > ipv4Len+udpLen {
		target, _ = netip.AddrFromSlice(ip[24:ipv6Len])
	}
	return netip.AddrPortFrom(target, binary.BigEndian.Uint16(udp[2:]))
}

// write puts the headers of a frame with the given UDP payload into h, which
// has the path's len bytes.
func (p *xdpPath) write(h, payload []byte) {
	be := binary.BigEndian
	copy(h, p.headers[:p.len])
	length := udpLen + len(payload)
	if p.len == ethernetLen+ipv4Len+udpLen {
		ip := h[ethernetLen:]
		be.PutUint16(ip[2:], uint16(ipv4Len+length))
		be.PutUint16(ip[10:], ^fold(uint64(p.sum)+uint64(ipv4Len+length)))
		be.PutUint16(ip[ipv4Len+4:], uint16(length))
		return // the UDP checksum is optional over IPv4, and frames have a checksum
	}
	ip := h[ethernetLen:]
	be.PutUint16(ip[4:], uint16(length))
	be.PutUint16(ip[ipv6Len+4:], uint16(length))
	// The length counts twice: in the pseudo-header and in the UDP header.
	checksum := ^fold(uint64(p.sum) + 2*uint64(length) + uint64(fold(sum(payload))))
	if checksum == 0 {
		checksum = 0xffff // 0 means that there is none, which IPv6 does not allow
	}
	be.PutUint16(ip[ipv6Len+6:], checksum)
}

// sum returns the one's complement sum of b as big-endian words, to be folded.
// It adds eight bytes at a time, in the machine's order: the sum's bytes come
// out swapped alike.
func sum(b []byte) uint64 {
	le := binary.LittleEndian
	var s, carry uint64
	for ; len(b) >= 32; b = b[32:] {
		s, carry = bits.Add64(s, le.Uint64(b[0:]), carry)
		s, carry = bits.Add64(s, le.Uint64(b[8:]), carry)
		s, carry = bits.Add64(s, le.Uint64(b[16:]), carry)
		s, carry = bits.Add64(s, le.Uint64(b[24:]), carry)
	}
	for ; len(b) >= 8; b = b[8:] {
		s, carry = bits.Add64(s, le.Uint64(b), carry)
	}
	if len(b) > 0 {
		var rest [8]byte
		copy(rest[:], b)
		s, carry = bits.Add64(s, le.Uint64(rest[:]), carry)
	}
	s, carry = bits.Add64(s, 0, carry)
	return uint64(bits.ReverseBytes16(fold(s + carry)))
}

// fold reduces a one's complement sum to 16 bits.
func fold(s uint64) uint16 {
	s = s>>32 + s&0xffffffff
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return uint16(s)
}

// datagram is a received frame taken apart. The slices alias the frame.
type datagram struct {
	sourceMAC  []byte
	source     []byte // IP address of 4 or 16 bytes
	sourcePort uint16
	payload    []byte
}

// parseFrame takes a frame apart into d and reports whether it is a whole UDP
// datagram on IPv4 or IPv6, with at most two tags of a priority, and of no VLAN. It reads what the
// classifier reads and trusts no length. Checksums of IP and UDP are the
// network's: the network card has checked them, or the frame never left this
// machine and has none; the payload has its own.
func parseFrame(frame []byte, d *datagram) bool {
	be := binary.BigEndian
	if len(frame) < ethernetLen {
		return false
	}
	d.sourceMAC = frame[6:12]
	kind, rest := be.Uint16(frame[12:]), frame[ethernetLen:]
	for range 2 {
		if kind != etherTypeVLAN && kind != etherTypeQinQ {
			break
		}
		if len(rest) < vlanLen || be.Uint16(rest)&vlanID != 0 {
			return false
		}
		kind, rest = be.Uint16(rest[2:]), rest[vlanLen:]
	}
	var udp []byte
	switch kind {
	case etherTypeIPv4:
		udp = parseIPv4(rest, d)
	case etherTypeIPv6:
		udp = parseIPv6(rest, d)
	}
	if len(udp) < udpLen || int(be.Uint16(udp[4:])) != len(udp) {
		return false
	}
	d.sourcePort = be.Uint16(udp)
	d.payload = udp[udpLen:len(udp):len(udp)]
	return true
}

// parseIPv4 returns the UDP datagram in an IPv4 packet, or nil. The packet may
// be followed by padding.
func parseIPv4(ip []byte, d *datagram) []byte {
	be := binary.BigEndian
	if len(ip) < ipv4Len || ip[0]>>4 != 4 || ip[9] != protocolUDP || be.Uint16(ip[6:])&fragmentMask != 0 {
		return nil
	}
	header, total := int(ip[0]&0xf)*4, int(be.Uint16(ip[2:]))
	if header < ipv4Len || total < header || total > len(ip) {
		return nil
	}
	d.source = ip[12:16]
	return ip[header:total]
}

// parseIPv6 returns the UDP datagram in an IPv6 packet without extension
// headers, or nil.
func parseIPv6(ip []byte, d *datagram) []byte {
	if len(ip) < ipv6Len || ip[0]>>4 != 6 || ip[6] != protocolUDP {
		return nil
	}
	total := ipv6Len + int(binary.BigEndian.Uint16(ip[4:]))
	if total > len(ip) {
		return nil
	}
	d.source = ip[8:24]
	return ip[ipv6Len:total]
}

// origin returns where a parsed datagram came from.
func (d *datagram) origin() endpoint {
	ip, _ := netip.AddrFromSlice(d.source)
	return endpoint{mac: [6]byte(d.sourceMAC), addr: netip.AddrPortFrom(ip, d.sourcePort)}
}

// plausible reports whether a datagram's source can be answered: not a group's
// address, and not port 0.
func (d *datagram) plausible() bool {
	ip, _ := netip.AddrFromSlice(d.source)
	return d.sourceMAC[0]&1 == 0 && !ip.IsMulticast() && !ip.IsUnspecified() && !ip.IsLoopback() && d.sourcePort != 0
}
