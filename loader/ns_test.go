package loader

import (
	"net"
	"net/netip"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// lab is two hosts joined by a veth pair: interface "a" in namespace a, "b" in b.
// The namespaces have no name and vanish with the last thing that uses them.
type lab struct {
	base, a, b netns.NsHandle
}

// shape is how the interfaces of a lab differ from the default.
type shape struct {
	mtu          int // of both; default 1500
	rxQueues     int // of b
	peerTxQueues int // of a
}

var addrA, addrB = net.IPv4(10, 8, 0, 1).To4(), net.IPv4(10, 8, 0, 2).To4()

// at is addrB.
var at = netip.AddrFrom4([4]byte(addrB))

// newLab locks the test to its thread.
func newLab(t *testing.T, s shape) *lab {
	t.Helper()
	testenv.NeedsRoot(t)
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	l := &lab{}
	var err error
	l.base, err = netns.Get()
	must(t, err)
	t.Cleanup(func() { l.base.Close() })
	for _, ns := range []*netns.NsHandle{&l.a, &l.b} {
		*ns, err = netns.New()
		must(t, netns.Set(l.base))
		must(t, err)
		t.Cleanup(func() { ns.Close() })
	}
	if s.mtu == 0 {
		s.mtu = 1500
	}
	l.in(t, l.b, func() {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = "b", s.mtu
		attrs.NumRxQueues, attrs.NumTxQueues = max(1, s.rxQueues), 1
		must(t, netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: attrs, PeerName: "a", PeerMTU: uint32(s.mtu), PeerNamespace: netlink.NsFd(l.a),
			PeerNumRxQueues: 1, PeerNumTxQueues: uint32(max(1, s.peerTxQueues))}))
	})
	l.up(t, l.a, "a", addrA)
	l.up(t, l.b, "b", addrB)
	return l
}

func (l *lab) up(t *testing.T, ns netns.NsHandle, name string, ip net.IP) {
	t.Helper()
	l.in(t, ns, func() {
		nic, err := netlink.LinkByName(name)
		must(t, err)
		must(t, netlink.AddrAdd(nic, &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(24, 32)}}))
		must(t, netlink.LinkSetUp(nic))
	})
}

// in runs f in a namespace.
func (l *lab) in(t *testing.T, ns netns.NsHandle, f func()) {
	t.Helper()
	must(t, netns.Set(ns))
	defer func() { must(t, netns.Set(l.base)) }()
	f()
}

// inB runs f in namespace b, where the tests attach.
func (l *lab) inB(t *testing.T, f func()) {
	t.Helper()
	l.in(t, l.b, f)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
