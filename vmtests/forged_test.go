package vmtests

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// attacker is the rank of the namespace that forged frames come from.
const attacker = 2

// frame returns a well-formed frame with that header and body.
func frame(h wire.Header, body []byte) []byte {
	b := append(make([]byte, wire.HeaderLen), body...)
	h.Encode(b)
	return b
}

func hello(random *rand.Rand, job uint64, rank, target uint32) []byte {
	body := make([]byte, wire.HelloLen)
	h := wire.Hello{Job: job, Incarnation: random.Uint64() | 1, Session: random.Uint64() | 1, Rank: rank, Target: target,
		MaxPayload: wire.MinPayload, Credits: 16}
	h.Encode(body)
	return frame(wire.Header{Kind: wire.KindHello}, body)
}

// forgeries are frames that no rank may take for one of its peers', by what is
// wrong with them.
var forgeries = []struct {
	name string
	make func(random *rand.Rand, n int) []byte
}{
	{"truncated", func(random *rand.Rand, n int) []byte {
		return frame(wire.Header{Kind: wire.KindData, Session: random.Uint64(), Packet: 1}, nil)[:n%wire.HeaderLen]
	}},
	{"noise", func(random *rand.Rand, n int) []byte {
		b := make([]byte, 1+n%1400)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}},
	{"noise with our magic", func(random *rand.Rand, n int) []byte {
		b := make([]byte, wire.HeaderLen+n%1300)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		binary.LittleEndian.PutUint32(b, wire.Magic)
		b[4] = wire.Version
		b[5] = byte(1 + n%7)
		return b
	}},
	{"wrong version", func(random *rand.Rand, _ int) []byte {
		b := frame(wire.Header{Kind: wire.KindData, Session: random.Uint64(), Packet: 1}, nil)
		b[4] = wire.Version + 1
		return b
	}},
	{"unknown session", func(random *rand.Rand, n int) []byte {
		kind := []wire.Kind{wire.KindData, wire.KindAck, wire.KindReset, wire.KindHelloAck}[n%4]
		return frame(wire.Header{Kind: kind, Session: random.Uint64() | 1, Packet: 1, Sequence: 1}, make([]byte, n%1000))
	}},
	{"hello of another job", func(random *rand.Rand, n int) []byte {
		return hello(random, random.Uint64()|1, uint32(n%2), uint32(1-n%2))
	}},
	{"empty hello", func(*rand.Rand, int) []byte { return frame(wire.Header{Kind: wire.KindHello}, nil) }},
}

// damagedHello is a hello of the job whose checksum is wrong.
func damagedHello(random *rand.Rand, job uint64, n int) []byte {
	b := hello(random, job, 0, 1)
	b[16] ^= byte(1 + n%255)
	return b
}

// udpFrom opens a UDP socket in a rank's namespace.
func udpFrom(t *testing.T, lab *netlab.Lab, rank int, port uint16) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	err := lab.Do(rank, func() (err error) {
		c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(lab.Addr(rank), port)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Forged frames do no harm and are counted, and what does not concern the library
// goes on over the same interfaces.
func TestForgedTraffic(t *testing.T) {
	for _, transport := range testenv.Cases([]string{"xdp-native", "udp"}, "xdp-generic") {
		t.Run(transport, func(t *testing.T) {
			lab := labtest.New(t, netlab.Config{Ranks: 3})
			j := start(t, lab, spec{program: "sum", ranks: 2, transports: []string{transport}})
			for _, r := range j.ranks {
				j.await(r, "running")
			}
			sent := forge(t, lab, j.base.FrameJob())
			ping(t, lab, 0, 1)
			ping(t, lab, attacker, 0)
			tcpTransfer(t, lab, 0, 1)
			udpTransfer(t, lab, 0, 1)
			for _, r := range j.ranks {
				r.tell("stop")
			}
			j.finish()
			for _, r := range j.ranks {
				checkCounted(t, r.n, j.counters(r), sent[r.n])
			}
		})
	}
}

const (
	forgedEach  = 200
	forgedFlood = 5000
	floodTime   = time.Second // a flood that took less was faster than a filter lets hellos through, on two processors, too
)

// forge sends forgedEach frames of each kind to both ranks, from the attacker and
// from each rank's own host, and then a flood of hellos that name the job. For each
// rank it returns how many frames a filter has to drop for which reason; of hellos of the job, at least one if they
// came fast enough.
func forge(t *testing.T, lab *netlab.Lab, job uint64) (sent [2]map[string]uint64) {
	t.Helper()
	sent = [2]map[string]uint64{{}, {}}
	random := rand.New(rand.NewPCG(1, 2))
	for _, from := range []int{attacker, 0, 1} {
		c := udpFrom(t, lab, from, 0)
		for to := range 2 {
			if to == from {
				continue
			}
			target := netip.AddrPortFrom(lab.Addr(to), bootstrap.DefaultPort)
			for _, f := range forgeries {
				for n := range forgedEach {
					b := f.make(random, n)
					sent[to][reason(b)]++
					sendForged(t, c, b, target)
				}
			}
			begin := time.Now()
			for n := range forgedFlood {
				sendForged(t, c, damagedHello(random, job, n), target)
			}
			if time.Since(begin) < floodTime {
				sent[to]["hello_limited"]++
			}
		}
	}
	return sent
}

// reason returns why a filter drops a forged frame, as its counters call it.
func reason(b []byte) string {
	switch {
	case len(b) < wire.HeaderLen:
		return "too_short"
	case binary.LittleEndian.Uint32(b) != wire.Magic:
		return "bad_magic"
	case b[4] != wire.Version:
		return "bad_version"
	case b[5] < byte(wire.KindHello) || b[5] > byte(wire.KindExpress):
		return "unknown_kind"
	case b[5] == byte(wire.KindHello) && binary.LittleEndian.Uint64(b[8:]) == 0:
		return "other_job"
	}
	return "unknown_session"
}

func sendForged(t *testing.T, c *net.UDPConn, b []byte, to netip.AddrPort) {
	t.Helper()
	// The answer to an earlier frame may have been that nobody listens.
	if _, err := c.WriteToUDPAddrPort(b, to); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
		t.Fatal(err)
	}
}

// checkCounted compares a rank's counters with what was sent to it. A UDP socket
// may have lost some of it, which is counted too.
func checkCounted(t *testing.T, rank int, c counters, sent map[string]uint64) {
	t.Helper()
	counted := c.Device.Filter
	if counted == nil {
		f := c.Faults
		counted = map[string]uint64{"too_short": f["short"], "bad_magic": f["magic"], "bad_version": f["version"],
			"unknown_kind": f["kind"]}
	} else if counted["hello_limited"] == 0 && sent["hello_limited"] > 0 {
		t.Errorf("rank %d: the flood of hellos was not limited", rank)
	}
	for _, name := range []string{"too_short", "bad_magic", "bad_version", "unknown_kind", "unknown_session", "other_job"} {
		want := sent[name]
		if got, known := counted[name]; known && (got > want || got+c.Device.RxDropped < want) {
			t.Errorf("rank %d counted %d of %s, want %d", rank, got, name, want)
		}
	}
	if c.Device.Filter == nil && c.Handshakes == 0 || c.Faults["checksum"] == 0 {
		t.Errorf("rank %d refused no handshake or saw no bad checksum: %+v", rank, c.Link)
	}
}

// ping sends ICMP echo requests from one rank's host to another's.
func ping(t *testing.T, lab *netlab.Lab, from, to int) {
	t.Helper()
	const count = 20
	var fd int
	err := lab.Do(from, func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5})
	for n := range count {
		request := make([]byte, 64)
		request[0] = 8 // echo
		binary.BigEndian.PutUint16(request[4:], 0x7872)
		binary.BigEndian.PutUint16(request[6:], uint16(n))
		binary.BigEndian.PutUint16(request[2:], internetChecksum(request))
		if err := unix.Sendto(fd, request, 0, &unix.SockaddrInet4{Addr: lab.Addr(to).As4()}); err != nil {
			t.Fatalf("ping: %v", err)
		}
		for answered := false; !answered; {
			b := make([]byte, 1500)
			got, _, err := unix.Recvfrom(fd, b, 0)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				t.Fatalf("ping %d from host %d to host %d: %v", n, from, to, err)
			}
			b = b[20:got] // an IPv4 header without options
			answered = b[0] == 0 && binary.BigEndian.Uint16(b[4:]) == 0x7872 && binary.BigEndian.Uint16(b[6:]) == uint16(n)
		}
	}
}

func internetChecksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// tcpTransfer sends some MiB from one rank's host to another's.
func tcpTransfer(t *testing.T, lab *netlab.Lab, from, to int) {
	t.Helper()
	data := make([]byte, 8<<20)
	fill(data, from, to, len(data))
	var l net.Listener
	err := lab.Do(to, func() (err error) {
		l, err = net.Listen("tcp4", netip.AddrPortFrom(lab.Addr(to), 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var c net.Conn
	err = lab.Do(from, func() (err error) {
		// Dial's helpers would run on threads outside the namespace.
		d := net.Dialer{Timeout: testenv.Limit, FallbackDelay: -1}
		c, err = d.Dial("tcp4", l.Addr().String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		c.Write(data)
		c.Close()
	}()
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	_ = in.SetDeadline(time.Now().Add(testenv.Limit))
	got, err := io.ReadAll(in)
	if err != nil || sha256.Sum256(got) != sha256.Sum256(data) {
		t.Errorf("TCP beside the ranks: %d of %d bytes, %v", len(got), len(data), err)
	}
}

// udpTransfer exchanges datagrams on a port that is not the library's.
func udpTransfer(t *testing.T, lab *netlab.Lab, from, to int) {
	t.Helper()
	a, b := udpFrom(t, lab, from, 0), udpFrom(t, lab, to, bootstrap.DefaultPort+1)
	buf := make([]byte, 100)
	for n := range 100 {
		_ = b.SetReadDeadline(time.Now().Add(testenv.Limit))
		want := fmt.Sprint("datagram ", n)
		if _, err := a.WriteToUDPAddrPort([]byte(want), netip.AddrPortFrom(lab.Addr(to), bootstrap.DefaultPort+1)); err != nil {
			t.Fatal(err)
		}
		if got, err := b.Read(buf); err != nil || string(buf[:got]) != want {
			t.Fatalf("UDP beside the ranks: %q, %v", buf[:got], err)
		}
	}
}

// TestForgedHelloBesideTheJob has a host that has seen a hello claim the places of both
// ranks, in later lives, while they work: they do not notice.
func TestForgedHelloBesideTheJob(t *testing.T) {
	for _, transport := range testenv.Cases([]string{"xdp-native", "udp"}, "xdp-generic") {
		t.Run(transport, func(t *testing.T) {
			lab := labtest.New(t, netlab.Config{Ranks: 3})
			j := start(t, lab, spec{program: "sum", ranks: 2, transports: []string{transport}})
			for _, r := range j.ranks {
				j.await(r, "running")
			}
			random := rand.New(rand.NewPCG(5, 6))
			c := udpFrom(t, lab, attacker, 0)
			for range forgedEach {
				for to := range 2 {
					sendForged(t, c, hello(random, j.base.FrameJob(), uint32(1-to), uint32(to)), netip.AddrPortFrom(lab.Addr(to), bootstrap.DefaultPort))
				}
			}
			for _, r := range j.ranks {
				r.tell("stop")
			}
			j.finish()
			for _, r := range j.ranks {
				if e := j.counters(r).Link; e.Refuted+e.Unverified == 0 || e.PeersFailed != 0 {
					t.Errorf("rank %d: %d hellos were refuted and %d had no verdict, and %d peers have failed", r.n, e.Refuted, e.Unverified, e.PeersFailed)
				}
			}
		})
	}
}

// A job starts and works while somebody floods its ranks with hellos.
func TestFloodedStart(t *testing.T) {
	for _, transport := range testenv.Cases([]string{"xdp-native"}, "udp") {
		t.Run(transport, func(t *testing.T) {
			lab := labtest.New(t, netlab.Config{Ranks: 3})
			c := udpFrom(t, lab, attacker, 0)
			var over atomic.Bool
			var flood sync.WaitGroup
			defer flood.Wait()
			defer over.Store(true)
			flood.Go(func() {
				random := rand.New(rand.NewPCG(3, 4))
				for !over.Load() {
					for to := range 2 {
						// Until the rank has its port, the answer is that nobody listens.
						_, _ = c.WriteToUDPAddrPort(hello(random, random.Uint64()|1, uint32(1-to), uint32(to)),
							netip.AddrPortFrom(lab.Addr(to), bootstrap.DefaultPort))
					}
				}
			})
			start(t, lab, spec{program: "exchange", ranks: 2, transports: []string{transport}}).finish()
		})
	}
}
