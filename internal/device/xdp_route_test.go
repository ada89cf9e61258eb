package device

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/userspace"
)

func TestXDPRoutes(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2})
	ip := func(args ...string) {
		t.Helper()
		if out, err := l.Command(0, "ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	ip("route", "add", "192.0.2.0/24", "via", l.Addr(1).String())
	ip("route", "add", "198.51.100.0/24", "dev", "lo")
	ip("route", "add", "blackhole", "203.0.113.0/24")
	ip("route", "add", "2001:db8::/32", "via", l.Addr6(1).String())
	for _, v6 := range []bool{false, true} {
		a := openEnd(t, l, 0, userspace.XDPNative, v6)
		x := a.dev.(*XDP)
		far := "192.0.2.5:700"
		if v6 {
			far = "[2001:db8::5]:700"
		}
		want := newPath(x.local, endpoint{mac: [6]byte(l.MAC(1)), addr: netip.MustParseAddrPort(far)}, 0)
		if got := x.paths.get(a.path(netip.MustParseAddrPort(far))); *got != want {
			t.Errorf("path through a gateway: %+v, want %+v", got, want)
		}
		if v6 {
			continue
		}
		for addr, complaint := range map[string]string{
			"198.51.100.1:5": "leaves through interface #1 and not xr0",
			"203.0.113.1:5":  "no route",
		} {
			if _, err := x.Path(t.Context(), netip.MustParseAddrPort(addr)); err == nil || !strings.Contains(err.Error(), complaint) {
				t.Errorf("path to %s, want %q: %v", addr, complaint, err)
			}
		}
		a.close()
	}
}

// A neighbour whose link address changes gets a new path; the old one stays
// what it was.
func TestXDPNeighbourChanges(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2})
	a := openEnd(t, l, 0, userspace.XDPNative, false)
	to := netip.AddrPortFrom(l.Addr(1), 700)
	old := a.path(to)
	out, err := l.Command(0, "ip", "neighbour", "replace", l.Addr(1).String(), "lladdr", "02:00:00:00:00:77", "dev", "xr0").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	x := a.dev.(*XDP)
	if now := a.path(to); now == old || x.paths.get(now).headers[5] != 0x77 || x.paths.get(old).headers[5] == 0x77 {
		t.Errorf("paths %d and %d: %+v", old, now, x.paths.get(now))
	}
}
