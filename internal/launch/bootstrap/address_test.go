package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/userspace"
)

// enterNamespace puts the test into a network namespace of its own, until it ends.
func enterNamespace(t *testing.T) {
	t.Helper()
	testenv.NeedsRoot(t)
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	outside, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { outside.Close() })
	inside, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inside.Close() })
	t.Cleanup(func() {
		if err := netns.Set(outside); err != nil {
			t.Error(err)
		}
	})
}

// TestServingEverywhereAnnouncesNoLoopback has rank 0 serve at all addresses of a host
// that has one interface, without and with a route to other networks, and of a host that
// has none. Where there are addresses of both families, 0.0.0.0 and :: choose.
func TestServingEverywhereAnnouncesNoLoopback(t *testing.T) {
	enterNamespace(t)
	checkFor := func(when, want string, hosts ...string) {
		t.Helper()
		for _, host := range hosts {
			got, err := (&Config{Rendezvous: host + ":7000"}).LocalAddress(testContext(t), netip.Addr{})
			if err != nil || got.String() != want {
				t.Errorf("%s, at %q: %v, %v, want %s", when, host, got, err, want)
			}
		}
	}
	check := func(when, want string) {
		t.Helper()
		checkFor(when, want, "0.0.0.0", "[::]", "")
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	lo, err := netlink.LinkByName("lo")
	do(err)
	do(netlink.LinkSetUp(lo))
	check("no interface", "127.0.0.1")
	for i, addr := range []string{"10.1.0.1/24", "10.2.0.1/24"} {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a" + addr[3:4]}, PeerName: "b" + addr[3:4]}
		do(netlink.LinkAdd(link))
		a, err := netlink.ParseAddr(addr)
		do(err)
		do(netlink.AddrAdd(link, a))
		do(netlink.LinkSetUp(link))
		peer, err := netlink.LinkByName(link.PeerName)
		do(err)
		do(netlink.LinkSetUp(peer))
		if i == 0 {
			check("one interface", "10.1.0.1")
			continue
		}
		everywhere := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
		do(netlink.RouteAdd(&netlink.Route{Dst: everywhere, Gw: net.ParseIP("10.2.0.9"), LinkIndex: link.Attrs().Index}))
		check("a route by the second interface", "10.2.0.1")
		six := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP("fd77::1"), Mask: net.CIDRMask(64, 128)}, Flags: unix.IFA_F_NODAD}
		do(netlink.AddrAdd(link, six))
		checkFor("addresses of both families", "10.2.0.1", "0.0.0.0", "")
		checkFor("addresses of both families", "fd77::1", "[::]")
	}
	for _, name := range []string{"a1", "a2"} {
		link, err := netlink.LinkByName(name)
		do(err)
		list, err := netlink.AddrList(link, netlink.FAMILY_V4)
		do(err)
		do(netlink.AddrDel(link, &list[0]))
	}
	check("IPv6 alone", "fd77::1")
}

// TestPassingAddressesAreNotTaken has the kernel prefer a temporary address, on the way to
// the rendezvous and of an interface that is named.
func TestPassingAddressesAreNotTaken(t *testing.T) {
	enterNamespace(t)
	for _, command := range []string{
		"ip link add name a type veth peer name b", "ip link set dev a up", "ip link set dev b up", "sysctl -q -w net.ipv6.conf.a.use_tempaddr=2",
		"ip address add fd77::1/64 dev a nodad mngtmpaddr",
	} {
		words := strings.Fields(command)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	testenv.Await(t, "the kernel to prefer a temporary address", func() bool {
		conn, err := net.Dial("udp", "[fd77::9]:9")
		if err != nil {
			return false
		}
		defer conn.Close()
		return !strings.HasPrefix(conn.LocalAddr().String(), "[fd77::1]")
	})
	if a, err := (&Config{Rendezvous: "[fd77::9]:7000"}).LocalAddress(testContext(t), netip.Addr{}); err != nil || a.String() != "fd77::1" {
		t.Errorf("on the way to the rendezvous: %v, %v", a, err)
	}
	if a := (&Config{Config: userspace.Config{Interface: "a"}}).servingAddress(testContext(t)); a.String() != "fd77::1" {
		t.Errorf("of the interface: %v", a)
	}
}

// TestMembersKnowTheAddressOfTheRendezvous joins by addresses, names and paths.
func TestMembersKnowTheAddressOfTheRendezvous(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rendezvous")
	for _, test := range []struct{ serve, dial, server, client string }{
		{"127.0.0.1:0", "", "127.0.0.1", "127.0.0.1"},
		{"[::1]:0", "", "::1", "::1"},
		{"0.0.0.0:0", "127.0.0.1", "0.0.0.0", "127.0.0.1"},
		{"[::]:0", "::1", "::", "::1"},
		{":0", "::1", "invalid IP", "::1"},
		{"unix:" + path, "unix:" + path, "invalid IP", "invalid IP"},
	} {
		first, err := Open(testContext(t), Config{Size: 2, Job: testJob, Rendezvous: test.serve, Serve: true}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		at := first.rendezvous.(*serving).server.listener.Addr()
		dial := test.dial
		if tcp, ok := at.(*net.TCPAddr); ok {
			dial = net.JoinHostPort(cmp.Or(test.dial, tcp.IP.String()), strconv.Itoa(tcp.Port))
		}
		second, err := Open(testContext(t), Config{Rank: 1, Size: 2, Job: testJob, Rendezvous: dial}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if first.Rendezvous.String() != test.server || second.Rendezvous.String() != test.client {
			t.Errorf("served at %s: %v and %v, want %s and %s", test.serve, first.Rendezvous, second.Rendezvous, test.server, test.client)
		}
		if err := errors.Join(second.Close(), first.Close()); err != nil {
			t.Error(err)
		}
	}
}

var debian = &net.TCPAddr{IP: net.ParseIP("127.0.1.1"), Port: 7000}

// TestLoopbackBehindAHostNameIsTold serves where a host's own name leads to loopback.
func TestLoopbackBehindAHostNameIsTold(t *testing.T) {
	for _, test := range []struct {
		rendezvous string
		size       int
		at         net.Addr
		told       bool
	}{
		{"node1:7000", 4, debian, true},
		{"tcp:node1:7000", 4, debian, true},
		{"node1:7000", 1, debian, false},
		{"node1:7000", 4, &net.TCPAddr{IP: net.ParseIP("10.0.0.1")}, false},
		{"127.0.1.1:7000", 4, debian, true},
		{"127.0.0.1:7000", 4, &net.TCPAddr{IP: net.ParseIP("127.0.0.1")}, false},
		{"localhost:7000", 4, &net.TCPAddr{IP: net.IPv6loopback}, false},
		{"unix:/x", 4, &net.UnixAddr{Name: "/x"}, false},
	} {
		c := Config{Rendezvous: test.rendezvous, Size: test.size}
		said := strings.Join(c.servedHere(test.at), "\n")
		if (said != "") != test.told || test.told && !strings.Contains(said, "127.0.1.1") {
			t.Errorf("%s of %d ranks at %v: %q", test.rendezvous, test.size, test.at, said)
		}
	}
}

// TestCauseOfAFailedConnectionIsNamed explains what dialling can fail with.
func TestCauseOfAFailedConnectionIsNamed(t *testing.T) {
	op := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
	}
	for _, test := range []struct {
		err  error
		want string
	}{
		{op(unix.ECONNREFUSED), "nobody listens"},
		{op(unix.ENOENT), "nobody listens"},
		{&net.OpError{Op: "dial", Addr: debian, Err: os.NewSyscallError("connect", unix.ECONNREFUSED)}, "the address means this host itself: if rank 0 runs on another one, set XDPRMA_RENDEZVOUS"},
		{op(unix.EHOSTUNREACH), "no route"},
		{op(unix.ENETUNREACH), "no route"},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "node9", IsNotFound: true}}, "unknown"},
		{&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, "does not answer"},
		{context.DeadlineExceeded, "does not answer"},
		{io.EOF, "was closed"},
		{op(unix.EACCES), "failed"},
	} {
		if got := explainDial(test.err); !strings.Contains(got.Error(), test.want) || !errors.Is(got, test.err) {
			t.Errorf("%v: %v, want %q", test.err, got, test.want)
		}
	}
}

// TestRankThatServesWaitsForItsName has rank 0 serve under a name that nobody knows, for as long as its
// place says, and until its context ends.
func TestRankThatServesWaitsForItsName(t *testing.T) {
	c := Config{Size: 2, Job: testJob, Rendezvous: "a..b:7000", Serve: true, Patience: 50 * time.Millisecond}
	attempts := 0
	_, err := Open(context.Background(), c, nil, nil)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the name a..b is unknown here") ||
		!strings.Contains(err.Error(), "0.0.0.0:7000") || !strings.Contains(err.Error(), EnvPatience) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.Patience = time.Hour
	if _, err := Open(ctx, c, nil, func(error) { attempts++; cancel() }); !errors.Is(err, context.Canceled) || attempts == 0 {
		t.Errorf("after %d attempts: %v", attempts, err)
	}
}

// TestTakenPlaceOfTheRendezvousIsExplained serves where somebody does already.
func TestTakenPlaceOfTheRendezvousIsExplained(t *testing.T) {
	s := serveAt(t, "127.0.0.1:0")
	at := netip.MustParseAddrPort(s.listener.Addr().String())
	_, err := Open(testContext(t), Config{Size: 2, Job: testJob, Rendezvous: at.String(), Serve: true}, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "another process is rank 0") {
		t.Errorf("got %v", err)
	}
}

// TestForeignPlaceOfTheRendezvousIsExplained serves at an address that no host has.
func TestForeignPlaceOfTheRendezvousIsExplained(t *testing.T) {
	_, err := Open(testContext(t), Config{Size: 2, Job: testJob, Rendezvous: "192.0.2.7:7000", Serve: true}, nil, nil)
	for _, want := range []string{"192.0.2.7:7000", "this host does not have that address", "is XDPRMA_RANK=0 right here?", "set XDPRMA_RENDEZVOUS"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestCutAttemptHidesNoReason dials where nobody listens. Once that has failed somebody does, and
// the caller gives up while no answer comes.
func TestCutAttemptHidesNoReason(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rendezvous")
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	var listener net.Listener
	_, err := Dial(ctx, rankAt("unix:"+path, 1, 2), func(error) {
		if listener != nil {
			return
		}
		var err error
		if listener, err = net.Listen("unix", path); err != nil {
			t.Error(err)
			cancel()
			return
		}
		go func() {
			if conn, err := listener.Accept(); err == nil {
				defer conn.Close()
				cancel()
			}
		}()
	})
	if listener != nil {
		listener.Close()
	}
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "nobody listens there yet") {
		t.Errorf("got %v", err)
	}
}

// TestAttemptsWithTheirTimeAreNotCutShort has attempts fail at different times before the end.
func TestAttemptsWithTheirTimeAreNotCutShort(t *testing.T) {
	begun := time.Now()
	timeout := &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
	for _, test := range []struct {
		limit time.Duration // of the caller, from the attempt's beginning
		err   error
		want  bool
	}{
		{time.Hour, timeout, false},
		{tryTimeout - time.Second, timeout, true},
		{tryTimeout - time.Second, unix.ECONNREFUSED, false},
		{-time.Second, unix.ECONNREFUSED, true},
	} {
		ctx, cancel := context.WithDeadline(t.Context(), begun.Add(test.limit))
		if got := cutShort(ctx, begun, test.err); got != test.want {
			t.Errorf("%v with %v to go: %v, want %v", test.err, test.limit, got, test.want)
		}
		cancel()
	}
}
