package device

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

// silence lets rank's host answer ARP requests for its address, or not.
func silence(t *testing.T, l *netlab.Lab, rank int, silent bool) {
	t.Helper()
	mode := "1" // arp_ignore: 1 answers for addresses of the interface, 8 for none
	if silent {
		mode = "8"
	}
	err := l.Do(rank, func() error {
		return os.WriteFile("/proc/sys/net/ipv4/conf/"+l.Interface(rank)+"/arp_ignore", []byte(mode), 0)
	})
	if err != nil {
		t.Error(err)
	}
}

// unknown makes rank's host forget the link address of another.
func unknown(t *testing.T, l *netlab.Lab, rank, other int) {
	t.Helper()
	err := l.Do(rank, func() error {
		link, err := netlink.LinkByName(l.Interface(rank))
		if err != nil {
			return err
		}
		err = netlink.NeighDel(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: l.Addr(other).AsSlice()})
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// requestsTo returns a socket that receives the ARP requests that reach rank's host.
func requestsTo(t *testing.T, l *netlab.Lab, rank int) int {
	t.Helper()
	const etherTypeARP = 0x0806
	s := newPacketSocket(t, l, rank)
	s.to.Protocol = etherTypeARP>>8 | etherTypeARP&0xff<<8
	if err := unix.Bind(s.fd, &s.to); err != nil {
		t.Fatal(err)
	}
	return s.fd
}

// A rank whose host misses the first requests for its link address is found when it
// answers a later one.
func TestXDPPathOutlivesLostRequests(t *testing.T) {
	const lost = 2 // the kernel sends the third after two seconds
	l := labtest.New(t, netlab.Config{Ranks: 2})
	a := openEnd(t, l, 0, userspace.XDPNative, false)
	unknown(t, l, 0, 1)
	silence(t, l, 1, true)
	requests, answering := requestsTo(t, l, 1), make(chan struct{})
	go func() {
		defer close(answering)
		var request [64]byte
		for range lost {
			if _, err := unix.Read(requests, request[:]); err != nil {
				return
			}
		}
		silence(t, l, 1, false)
	}()
	x := a.dev.(*XDP)
	id, err := x.Path(t.Context(), netip.AddrPortFrom(l.Addr(1), 700))
	if err != nil {
		t.Fatal(err)
	}
	<-answering
	if got := x.paths.get(id).headers[:6]; string(got) != string(l.MAC(1)) {
		t.Errorf("link address %x, want %v", got, l.MAC(1))
	}
}

// A caller that gives the search for a link address up does not wait for its end.
func TestXDPPathIsGivenUp(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2})
	a := openEnd(t, l, 0, userspace.XDPNative, false)
	unknown(t, l, 0, 1)
	silence(t, l, 1, true)
	requests := requestsTo(t, l, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		var request [64]byte
		_, _ = unix.Read(requests, request[:])
		cancel()
	}()
	x := a.dev.(*XDP)
	x.patience = 1 << 62
	if _, err := x.Path(ctx, netip.AddrPortFrom(l.Addr(1), 700)); !errors.Is(err, context.Canceled) || !errors.Is(err, mpierr.Timeout) {
		t.Errorf("error %v", err)
	}
}

// A kernel without room for another neighbour is not taken for a peer that does not
// answer.
func TestFullNeighbourTableIsNotThePeersFault(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2})
	x := openEnd(t, l, 0, userspace.XDPNative, false).dev.(*XDP)
	err := x.silent(l.Addr(1), netlink.NUD_NONE, nil)
	if classOfNeighbour(err) != mpierr.NoMem || !strings.Contains(err.Error(), "gc_thresh3") || strings.Contains(err.Error(), "does not answer") {
		t.Errorf("class %v: %v", classOfNeighbour(err), err)
	}
	err = x.silent(l.Addr(1), netlink.NUD_INCOMPLETE, nil)
	if classOfNeighbour(err) == mpierr.NoMem || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("class %v: %v", classOfNeighbour(err), err)
	}
}
