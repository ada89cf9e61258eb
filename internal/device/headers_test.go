package device

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// slowSum is the one's complement sum as RFC 1071 describes it.
func slowSum(b []byte) uint16 {
	var s uint32
	for i, v := range b {
		if i%2 == 0 {
			s += uint32(v) << 8
		} else {
			s += uint32(v)
		}
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

// same reports whether two one's complement sums are equal; 0 has two forms.
func same(a, b uint16) bool { return a == b || a^b == 0xffff && (a == 0 || b == 0) }

//fuzz:inputs 35000
func FuzzSum(f *testing.F) {
	f.Add([]byte{}, uint8(0))
	f.Add(bytes.Repeat([]byte{0xff}, 100), uint8(3))
	f.Add([]byte("a payload of an odd length, longer than 32"), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, skip uint8) {
		b = b[min(int(skip), len(b)):]
		if got, want := fold(sum(b)), slowSum(b); !same(got, want) {
			t.Errorf("sum of %x: %#04x, want %#04x", b, got, want)
		}
	})
}

func TestSumOfRandomBytes(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for n := range 300 {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		if got, want := fold(sum(b)), slowSum(b); !same(got, want) {
			t.Fatalf("seed %d: sum of %x: %#04x, want %#04x", seed, b, got, want)
		}
	}
}

func testEndpoint(last byte, addr string) endpoint {
	return endpoint{mac: [6]byte{2, 0, 0, 0, 0, last}, addr: netip.MustParseAddrPort(addr)}
}

var (
	testEnds4 = [2]endpoint{testEndpoint(1, "10.0.0.1:1000"), testEndpoint(2, "10.0.0.2:2001")}
	testEnds6 = [2]endpoint{testEndpoint(1, "[fd00::1]:1000"), testEndpoint(2, "[fd00::2]:2001")}
)

// buildFrame returns a whole frame from ends[0] to ends[1].
func buildFrame(ends [2]endpoint, payload []byte) []byte {
	p := newPath(ends[0], ends[1], 0)
	frame := make([]byte, int(p.len)+len(payload))
	copy(frame[p.len:], payload)
	p.write(frame[:p.len], frame[p.len:])
	return frame
}

// withTag returns frame with a VLAN tag in front of the others: its type, and the VLAN's id, 0 where the
// tag is about a priority alone.
func withTag(frame []byte, etherType, id uint16) []byte {
	tag := binary.BigEndian.AppendUint32(nil, uint32(etherType)<<16|0xe000|uint32(id))
	return slices.Concat(frame[:12], tag, frame[12:])
}

// inOtherVLANs returns frame as it is in VLANs.
func inOtherVLANs(frame []byte) [][]byte {
	return [][]byte{
		withTag(frame, etherTypeVLAN, 77),
		withTag(frame, etherTypeQinQ, 77),
		withTag(withTag(frame, etherTypeVLAN, 1), etherTypeQinQ, 0x800),
		withTag(withTag(frame, etherTypeVLAN, 77), etherTypeVLAN, 0),
		withTag(withTag(frame, etherTypeVLAN, 0), etherTypeQinQ, 77),
	}
}

func TestHeaders(t *testing.T) {
	for _, ends := range [][2]endpoint{testEnds4, testEnds6} {
		for n := range 200 {
			payload := bytes.Repeat([]byte{byte(n), 0xff}, n)[:n]
			frame := buildFrame(ends, payload)
			checkChecksums(t, frame)
			for tags, f := range [][]byte{frame, withTag(frame, etherTypeVLAN, 0), withTag(withTag(frame, etherTypeVLAN, 0), etherTypeQinQ, 0)} {
				var d datagram
				if !parseFrame(append(f, 0, 0, 0), &d) { // padded
					t.Fatalf("%v, %d bytes, %d tags: refused", ends, n, tags)
				}
				if d.origin() != ends[0] || !bytes.Equal(d.payload, payload) || !d.plausible() {
					t.Fatalf("%v, %d bytes, %d tags: parsed as %+v", ends, n, tags, d)
				}
			}
			if parseFrame(withTag(withTag(withTag(frame, etherTypeVLAN, 0), etherTypeVLAN, 0), etherTypeQinQ, 0), new(datagram)) {
				t.Fatal("three tags accepted")
			}
			for _, f := range inOtherVLANs(frame) {
				if parseFrame(f, new(datagram)) {
					t.Fatalf("a frame of another VLAN accepted: %x", f[:ethernetLen+2*vlanLen])
				}
			}
			for cut := range frame {
				if parseFrame(frame[:cut], new(datagram)) {
					t.Fatalf("%v: the first %d of %d bytes accepted", ends, cut, len(frame))
				}
			}
		}
	}
}

// checkChecksums verifies the checksums of an untagged frame as a receiver does.
func checkChecksums(t *testing.T, frame []byte) {
	t.Helper()
	ip := frame[ethernetLen:]
	if ip[0]>>4 == 4 {
		if s := slowSum(ip[:ipv4Len]); s != 0xffff {
			t.Fatalf("IPv4 checksum of %x", ip[:ipv4Len])
		}
		if c := ip[ipv4Len+6 : ipv4Len+8]; c[0] != 0 || c[1] != 0 {
			t.Fatal("there is a UDP checksum over IPv4")
		}
		return
	}
	pseudo := append(bytes.Clone(ip[8:40]), 0, 0, ip[4], ip[5], 0, 0, 0, protocolUDP)
	if len(pseudo)%2 != 0 || slowSum(append(pseudo, ip[ipv6Len:]...)) != 0xffff {
		t.Fatalf("UDP checksum of %x", ip)
	}
	if ip[ipv6Len+6] == 0 && ip[ipv6Len+7] == 0 {
		t.Fatal("there is no UDP checksum over IPv6")
	}
}

// A checksum that comes out as 0 is sent as 0xffff.
func TestIPv6ChecksumIsNeverZero(t *testing.T) {
	for i := range 1 << 16 {
		frame := buildFrame(testEnds6, []byte{byte(i >> 8), byte(i)})
		if udp := frame[ethernetLen+ipv6Len:]; udp[6] == 0xff && udp[7] == 0xff {
			checkChecksums(t, frame)
			return
		}
	}
	t.Error("no payload has that checksum")
}

func TestForgedFrames(t *testing.T) {
	type change struct {
		name string
		at   int
		to   byte
	}
	payload := make([]byte, 100)
	for _, c := range []change{
		{"type", 12, 9}, {"version", 14, 0x55}, {"header too short", 14, 0x44}, {"header too long", 14, 0x4f},
		{"total length too long", 16, 0xff}, {"total length short of the header", 17, 3}, {"fragment", 20, 0x20},
		{"offset", 21, 1}, {"protocol", 23, 6}, {"UDP too long", 38, 1}, {"UDP short of its header", 39, 7},
	} {
		frame := buildFrame(testEnds4, payload)
		if frame[c.at] = c.to; parseFrame(frame, new(datagram)) {
			t.Errorf("IPv4 with a wrong %s accepted", c.name)
		}
	}
	for _, c := range []change{{"version", 14, 0x45}, {"length", 18, 0xff}, {"next header", 20, 0}, {"UDP length", 59, 7}} {
		frame := buildFrame(testEnds6, payload)
		if frame[c.at] = c.to; parseFrame(frame, new(datagram)) {
			t.Errorf("IPv6 with a wrong %s accepted", c.name)
		}
	}
	for name, from := range map[string]endpoint{
		"a group's MAC": {mac: [6]byte{1}, addr: testEnds4[0].addr},
		"a group":       testEndpoint(1, "224.0.0.1:5"),
		"nobody":        testEndpoint(1, "0.0.0.0:5"),
		"loopback":      testEndpoint(1, "127.0.0.1:5"),
		"port 0":        testEndpoint(1, "10.0.0.1:0"),
	} {
		var d datagram
		if !parseFrame(buildFrame([2]endpoint{from, testEnds4[1]}, payload), &d) || d.plausible() {
			t.Errorf("a path to %s is learned", name)
		}
	}
}

//fuzz:inputs 25000
func FuzzParseFrame(f *testing.F) {
	payload := []byte("payload")
	for _, ends := range [][2]endpoint{testEnds4, testEnds6} {
		f.Add(buildFrame(ends, payload))
		f.Add(withTag(buildFrame(ends, payload), etherTypeVLAN, 0))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		var d datagram
		if !parseFrame(frame, &d) {
			return
		}
		if len(d.sourceMAC) != 6 || len(d.source) != 4 && len(d.source) != 16 || len(d.payload) > len(frame)-ethernetLen-ipv4Len-udpLen {
			t.Errorf("%x is parsed as %+v", frame, d)
		}
		if len(d.payload) > 0 && !bytes.Contains(frame, d.payload) {
			t.Errorf("the payload of %x is not in it", frame)
		}
		d.origin()
		d.plausible()
	})
}

func TestParseFrameAllocatesNothing(t *testing.T) {
	frame := buildFrame(testEnds6, make([]byte, 100))
	var d datagram
	if n := testing.AllocsPerRun(100, func() { parseFrame(frame, &d); d.plausible() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkSum1472(b *testing.B) {
	payload := make([]byte, 1472)
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		sum(payload)
	}
}
