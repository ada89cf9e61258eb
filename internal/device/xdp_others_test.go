package device

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/userspace"
)

// othersLab is a lab where frames for others arrive at rank 1's interface. Rank 1 has a
// second address, 10.77.0.11. The way from rank 0 to an address of rank 2, 10.88.0.3, and
// back leads through rank 1. Instead of its own interface, rank 3 has a macvlan above that of
// rank 1, with 10.77.0.20. The addresses of IPv6 end alike.
func othersLab(t *testing.T) *netlab.Lab {
	t.Helper()
	l := labtest.New(t, netlab.Config{Ranks: 4})
	do := func(rank int, f func() error) {
		t.Helper()
		if err := l.Do(rank, f); err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
	}
	for _, c := range []struct {
		rank    int
		setting string
		value   string
	}{
		{1, "ipv4/ip_forward", "1"},
		{1, "ipv6/conf/all/forwarding", "1"},
		// No redirect shall tell ranks 0 and 2 of the shorter way.
		{0, "ipv4/conf/all/accept_redirects", "0"},
		{0, "ipv4/conf/xr0/accept_redirects", "0"},
		{0, "ipv6/conf/xr0/accept_redirects", "0"},
		{2, "ipv4/conf/all/accept_redirects", "0"},
		{2, "ipv4/conf/xr2/accept_redirects", "0"},
		{2, "ipv6/conf/xr2/accept_redirects", "0"},
	} {
		do(c.rank, func() error { return os.WriteFile("/proc/sys/net/"+c.setting, []byte(c.value), 0) })
	}
	for _, c := range []struct {
		rank    int
		command string // of ip
	}{
		{1, "address add 10.77.0.11/24 dev xr1"},
		{1, "address add fd77::11/64 dev xr1 nodad"},

		{2, "address add 10.88.0.3/32 dev xr2"},
		{2, "address add fd88::3/128 dev xr2 nodad"},
		{0, "route add 10.88.0.3 via 10.77.0.2"},
		{0, "route add fd88::3 via fd77::2"},
		{1, "route add 10.88.0.3 via 10.77.0.3"},
		{1, "route add fd88::3 via fd77::3"},
		{2, "route add 10.77.0.1 via 10.77.0.2"},
		{2, "route add fd77::1 via fd77::2"},

		{1, "link add xrm link xr1 type macvlan mode bridge"},
		{1, "link set xrm netns " + l.Namespace(3)},
		{3, "link set xr3 down"},
		{3, "link set xrm up"},
		{3, "address add 10.77.0.20/24 dev xrm"},
		{3, "address add fd77::20/64 dev xrm nodad"},
	} {
		do(c.rank, func() error {
			if out, err := exec.Command("ip", strings.Fields(c.command)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w\n%s", c.command, err, out)
			}
			return nil
		})
	}
	return l
}

// While a rank has an interface over XDP, frames that arrive there for its port at other
// addresses go where they would without it.
func TestFramesForOthersPass(t *testing.T) {
	const port = 4000
	l := othersLab(t)
	open := func(t *testing.T, rank int, c Config) *end {
		t.Helper()
		var dev Device
		err := l.Do(rank, func() (err error) {
			c.Port, c.Slots = port, 64
			dev, err = Open(t.Context(), c)
			return err
		})
		return newEnd(t, dev, err)
	}
	for _, transport := range []userspace.Transport{userspace.XDPNative, userspace.XDPGeneric} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, IPv6 %v", transport, v6), func(t *testing.T) {
				holder := open(t, 1, Config{Config: userspace.Config{Transport: transport, Interface: "xr1", Address: address(l, 1, v6)}})
				for _, other := range []struct {
					name    string
					rank    int
					address string // and of IPv6
				}{
					{"a second address", 1, "10.77.0.11 fd77::11"},
					{"routed", 2, "10.88.0.3 fd88::3"},
					{"macvlan", 3, "10.77.0.20 fd77::20"},
				} {
					t.Run(other.name, func(t *testing.T) {
						at := strings.Fields(other.address)[btoi(v6)]
						peer := open(t, 0, Config{Config: userspace.Config{Transport: userspace.UDP, Address: address(l, 0, v6)}})
						exchange(t, peer, open(t, other.rank, Config{Config: userspace.Config{Transport: userspace.UDP, Address: netip.MustParseAddr(at)}}))
						text := message(wire.KindData, 1000) // of a job that has both
						peer.send(peer.path(holder.dev.Facts().Local), text)
						sameMessages(t, holder.receive(1), [][]byte{text})
					})
				}
				for _, at := range []string{"10.77.0.11", "fd77::11"} {
					t.Run("another program at "+at, func(t *testing.T) {
						echo(t, l, netip.AddrPortFrom(netip.MustParseAddr(at), port))
					})
				}
			})
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// echo has a socket of rank 0 and one of rank 1 at the given address exchange datagrams that
// are none of this library.
func echo(t *testing.T, l *netlab.Lab, at netip.AddrPort) {
	t.Helper()
	var conns [2]*net.UDPConn
	for rank := range conns {
		err := l.Do(rank, func() (err error) {
			if rank == 1 {
				conns[1], err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
			} else {
				conns[0], err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer conns[rank].Close()
		if err := conns[rank].SetDeadline(time.Now().Add(testenv.Limit)); err != nil {
			t.Fatal(err)
		}
	}
	question, answer := []byte("how are you"), make([]byte, 100)
	if _, err := conns[0].Write(question); err != nil {
		t.Fatal(err)
	}
	n, from, err := conns[1].ReadFromUDPAddrPort(answer)
	if err == nil {
		_, err = conns[1].WriteToUDPAddrPort(answer[:n], from)
	}
	if err == nil {
		n, err = conns[0].Read(answer)
	}
	if err != nil || string(answer[:n]) != string(question) {
		t.Errorf("%q came back: %v", answer[:n], err)
	}
}
