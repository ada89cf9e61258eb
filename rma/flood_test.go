package rma_test

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/rma"
	"github.com/xdprma/xdprma/userspace"
)

// TestSessionsOpenUnderFlood has fifty ranks open sessions with one, while somebody sends that one
// as many hellos as he can: some that he has captured, as they were, and others with something
// changed.
func TestSessionsOpenUnderFlood(t *testing.T) {
	const peers = 50
	lab := newLab(t, 3)
	key := secure.NewKey()
	places := floodPlaces(t, lab, peers, &key)
	hellos := capture(t, lab, 1)
	j := joined(t, places, func(rank int, join func() error) error { return lab.Do(min(rank, 1), join) },
		rma.Config{Limits: rma.Limits{DeadAfter: time.Minute}}) // a busy machine takes all its time for the flood
	hello := func(rank int) error { // opens the session with rank 0
		return comm.Send(j.ctx, j.nodes[rank].World(), []int64{int64(rank)}, 0, 0)
	}
	const first = 4 // that are captured
	for rank := 1; rank <= first; rank++ {
		j.must(hello(rank))
	}
	testenv.Await(t, "captured hellos", func() bool { return len(hellos.all()) >= first })
	var over atomic.Bool
	var flood sync.WaitGroup
	var sent atomic.Uint64
	flood.Go(func() { hellos.flood(t, lab, &sent, &over) })
	defer flood.Wait()
	defer over.Store(true)
	testenv.Await(t, "the flood", func() bool { return sent.Load() > 2000 })
	begin, before := time.Now(), sent.Load()
	var all sync.WaitGroup
	for rank := first + 1; rank <= peers; rank++ {
		all.Go(func() {
			if err := hello(rank); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	sum := []int64{0}
	total := int64(0)
	for range peers {
		_, err := comm.Recv(j.ctx, j.nodes[0].World(), sum, comm.AnySource, 0)
		j.must(err)
		total += sum[0]
	}
	all.Wait()
	took := time.Since(begin)
	over.Store(true)
	flood.Wait()
	s := j.nodes[0].Stats()
	t.Logf("%d sessions opened in %v, beside %d hellos (%.0f a second); the program counted %v, the rank %v",
		peers-first, took, sent.Load()-before, float64(sent.Load()-before)/took.Seconds(), s.Device.Filter, s.Faults)
	if total != peers*(peers+1)/2 || s.PeersFailed > 0 {
		t.Errorf("the sum is %d, and %d peers have failed", total, s.PeersFailed)
	}
	if s.Device.Filter["bad_code"] == 0 || s.Device.Filter["hello_limited"] == 0 {
		t.Errorf("the program counted %v", s.Device.Filter)
	}
}

// floodPlaces returns the places of rank 0, over XDP, and of its peers, over UDP in another
// namespace, in a job that signs its frames.
func floodPlaces(t *testing.T, lab *netlab.Lab, peers int, key *secure.Key) []bootstrap.Config {
	t.Helper()
	places := placesIn(t, lab, userspace.XDPNative)[:1]
	l, err := bootstrap.Listen("unix:" + t.TempDir() + "/rendezvous")
	if err != nil {
		t.Fatal(err)
	}
	first := places[0]
	first.Size, first.Key, first.Security = peers+1, key, "sign"
	server, err := bootstrap.Serve(l, &first)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	first.Rendezvous = server.Addr()
	places = []bootstrap.Config{first}
	for rank := 1; rank <= peers; rank++ {
		p := first
		p.Config = userspace.Config{Transport: userspace.UDP, Address: lab.Addr(1), Port: uint16(10000 + rank)}
		p.Rank, p.Host, p.Frames = rank, "the other", true
		places = append(places, p)
	}
	return places
}

// captured are the hellos that have left a rank's interface, as frames.
type captured struct {
	mu     sync.Mutex
	frames [][]byte
}

func (c *captured) all() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frames
}

const headersLen = 14 + 20 + 8 // of Ethernet, IPv4 and UDP

// capture begins to record the hellos that leave a rank's interface.
func capture(t *testing.T, lab *netlab.Lab, rank int) *captured {
	t.Helper()
	fd, _ := packetSocket(t, lab, rank)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}); err != nil {
		t.Fatal(err)
	}
	c := &captured{}
	var over atomic.Bool
	var reading sync.WaitGroup
	reading.Go(func() {
		b := make([]byte, 2048)
		for !over.Load() {
			n, _, err := unix.Recvfrom(fd, b, 0)
			if err == nil && n == headersLen+wire.GreetingLen && b[headersLen+5] == byte(wire.KindHello) {
				c.mu.Lock()
				c.frames = append(c.frames, append([]byte(nil), b[:n]...))
				c.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() { over.Store(true); reading.Wait(); _ = unix.Close(fd) })
	return c
}

// packetSocket opens one that sees and sends all frames of a rank's interface.
func packetSocket(t *testing.T, lab *netlab.Lab, rank int) (fd int, to unix.SockaddrLinklayer) {
	t.Helper()
	err := lab.Do(rank, func() error {
		ifi, err := net.InterfaceByName(lab.Interface(rank))
		if err != nil {
			return err
		}
		all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
		to.Ifindex, to.Protocol = ifi.Index, all
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all)); err != nil {
			return err
		}
		return unix.Bind(fd, &to)
	})
	if err != nil {
		t.Fatal(err)
	}
	return fd, to
}

// flood sends what was captured to rank 0 from the last rank's interface until over, each frame as it
// was, and then with another bit changed each time. It counts those that it has sent.
func (c *captured) flood(t *testing.T, lab *netlab.Lab, sent *atomic.Uint64, over *atomic.Bool) {
	from := lab.Ranks() - 1
	fd, to := packetSocket(t, lab, from)
	defer unix.Close(fd)
	for n := 0; !over.Load(); n++ {
		for _, frame := range c.all() {
			b := append([]byte(nil), frame...)
			copy(b, lab.MAC(0))
			copy(b[6:], lab.MAC(from))
			binary.BigEndian.PutUint16(b[headersLen-2:], 0) // the checksum of UDP may be of an offload
			if n%2 == 1 {
				bit := n / 2 % (8 * wire.GreetingLen)
				b[headersLen+bit/8] ^= 1 << (bit % 8)
			}
			if unix.Sendto(fd, b, 0, &to) == nil {
				sent.Add(1)
			}
		}
	}
}
