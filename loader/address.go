package loader

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/bpf"
)

// addressFor is an address as the program compares it with that of a frame.
func addressFor(a netip.Addr) bpf.ClassifierAddress {
	var b [16]byte
	copy(b[:], a.AsSlice())
	le := binary.LittleEndian
	p := bpf.ClassifierAddress{Words: [2]uint64{le.Uint64(b[:8]), le.Uint64(b[8:])}, Protocol: unix.ETH_P_IPV6}
	if a.Is4() {
		p.Protocol = unix.ETH_P_IP
	}
	return p
}

// addressOf is the inverse of addressFor.
func addressOf(p bpf.ClassifierAddress) netip.Addr {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], p.Words[0])
	binary.LittleEndian.PutUint64(b[8:], p.Words[1])
	if p.Protocol == unix.ETH_P_IP {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16(b)
}
