package device

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

// in runs commands, with a space between words, in the namespace of a rank.
func in(t *testing.T, l *netlab.Lab, rank int, commands ...string) {
	t.Helper()
	for _, c := range commands {
		words := strings.Fields(c)
		if out, err := l.Command(rank, words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", c, err, out)
		}
	}
}

// openAt opens a device of rank 0.
func openAt(ctx context.Context, l *netlab.Lab, c Config) (dev Device, err error) {
	c.Slots = 64
	err = l.Do(0, func() (err error) {
		dev, err = Open(ctx, c)
		return err
	})
	return dev, err
}

// A device whose interface alone is named takes the address that the rule says, over XDP
// and UDP alike.
func TestAddressOfInterface(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2})
	v6 := netip.MustParseAddr("fd99::1")
	for _, c := range []struct {
		name     string
		commands []string // after all addresses have been removed
		near     netip.Addr
		want     string // what the address starts with
	}{
		{name: "link-local first", want: "10.77.0.1",
			commands: []string{"ip address add 169.254.7.7/16 dev xr0", "ip address add 10.77.0.1/24 dev xr0"}},
		{name: "both families", want: "10.77.0.1",
			commands: []string{"ip address add fd77::1/64 dev xr0 nodad", "ip address add 10.77.0.1/24 dev xr0"}},
		{name: "both families, a rendezvous over IPv6", want: "fd77::1", near: v6,
			commands: []string{"ip address add fd77::1/64 dev xr0 nodad", "ip address add 10.77.0.1/24 dev xr0"}},
		{name: "deprecated", want: "fd77::1", // the kernel lists the newest first
			commands: []string{"ip address add fd77::1/64 dev xr0 nodad", "ip address add fd78::1/64 dev xr0 nodad preferred_lft 0"}},
		{name: "temporary", want: "fd77::1",
			commands: []string{"ip address add fd77::1/64 dev xr0 nodad mngtmpaddr"}},
		{name: "link-local alone", want: "fe80::1",
			commands: []string{"ip address add fe80::1/64 dev xr0 nodad"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in(t, l, 0, "ip address flush dev xr0", "sysctl -q -w net.ipv6.conf.xr0.use_tempaddr=2")
			in(t, l, 0, c.commands...)
			if c.name == "temporary" {
				out, err := l.Command(0, "ip", "address", "show", "dev", "xr0", "temporary").CombinedOutput()
				if err != nil || !strings.Contains(string(out), "fd77:") {
					t.Fatalf("there is no temporary address: %v: %s", err, out)
				}
			}
			for _, transport := range []userspace.Transport{userspace.XDPNative, userspace.UDP} {
				dev, err := openAt(t.Context(), l, Config{Config: userspace.Config{Transport: transport, Interface: "xr0"}, Near: c.near})
				if err != nil {
					t.Error(err)
					continue
				}
				if got := dev.Facts().Local.Addr().String(); got != c.want {
					t.Errorf("%s has the address %s, want %s", transport, got, c.want)
				}
				if err := dev.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Ranks reach each other at link-local addresses of IPv6, however these are named, and
// though their hosts call the link differently.
func TestLinkLocalExchange(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2})
	in(t, l, 0, "ip address add fe80::1/64 dev xr0 nodad")
	in(t, l, 1, "ip address add fe80::2/64 dev xr1 nodad")
	open := func(t *testing.T, rank int, transport userspace.Transport, c Config) *end {
		var dev Device
		err := l.Do(rank, func() (err error) {
			c.Transport, c.Slots = transport, 128
			dev, err = Open(t.Context(), c)
			return err
		})
		e := newEnd(t, dev, err)
		if zone := e.dev.Facts().Local.Addr().Zone(); zone != "" {
			t.Errorf("peers are told of the zone %q", zone)
		}
		return e
	}
	for _, transports := range [][2]userspace.Transport{
		{userspace.UDP, userspace.UDP}, {userspace.XDPNative, userspace.XDPNative}, {userspace.UDP, userspace.XDPNative}, {userspace.XDPNative, userspace.UDP},
	} {
		for name, configs := range map[string][2]Config{
			"interface and address": {
				{Config: userspace.Config{Interface: "xr0", Address: netip.MustParseAddr("fe80::1")}}, {Config: userspace.Config{Interface: "xr1", Address: netip.MustParseAddr("fe80::2")}}},
			"address with its zone": {
				{Config: userspace.Config{Address: netip.MustParseAddr("fe80::1%xr0")}}, {Config: userspace.Config{Address: netip.MustParseAddr("fe80::2%xr1")}}},
			"address alone": {
				{Config: userspace.Config{Address: netip.MustParseAddr("fe80::1")}}, {Config: userspace.Config{Address: netip.MustParseAddr("fe80::2")}}},
		} {
			t.Run(fmt.Sprint(transports, name), func(t *testing.T) {
				a, b := open(t, 0, transports[0], configs[0]), open(t, 1, transports[1], configs[1])
				exchange(t, a, b)
				a.close()
				b.close()
			})
		}
	}
}

// An address that is being looked for duplicates of is waited for.
func TestTentativeAddressIsWaitedFor(t *testing.T) {
	defer func(was time.Duration) { settlePatience = was }(settlePatience)
	settlePatience = testenv.Limit
	l := labtest.New(t, netlab.Config{Ranks: 2})
	in(t, l, 0, "sysctl -q -w net.ipv6.conf.xr0.accept_dad=1")
	// An interface that comes up without a carrier looks for no duplicates until it has one.
	// With the carrier alone lost, the kernel goes on looking and is done within a second.
	lookForNothing := func() {
		in(t, l, 1, "ip link set xr1 down")
		in(t, l, 0, "ip address flush dev xr0", "ip link set xr0 down", "ip link set xr0 up", "ip address add fd79::1/64 dev xr0")
	}
	for name, c := range map[string]Config{
		"named":         {Config: userspace.Config{Interface: "xr0", Address: netip.MustParseAddr("fd79::1")}},
		"named alone":   {Config: userspace.Config{Address: netip.MustParseAddr("fd79::1")}},
		"the only ones": {Config: userspace.Config{Interface: "xr0"}},
	} {
		for _, transport := range []userspace.Transport{userspace.XDPNative, userspace.UDP} {
			t.Run(name+", "+string(transport), func(t *testing.T) {
				lookForNothing()
				c.Transport = transport
				var dev Device
				opened := testenv.Start(func() (err error) {
					dev, err = openAt(t.Context(), l, c)
					return err
				})
				in(t, l, 1, "ip link set xr1 up")
				if err := testenv.Ends(t, "the opening", opened); err != nil {
					t.Fatal(err)
				}
				if got := dev.Facts().Local.Addr().String(); got != "fd79::1" {
					t.Errorf("address %s", got)
				}
				if err := dev.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	lookForNothing()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := openAt(ctx, l, Config{Config: userspace.Config{Interface: "xr0"}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("when the context ends: %v", err)
	}
	settlePatience = 0
	if _, err := openAt(t.Context(), l, Config{Config: userspace.Config{Interface: "xr0"}}); err == nil || !strings.Contains(err.Error(), "fd79::1 is tentative") {
		t.Errorf("when it takes too long: %v", err)
	}
}

// Errors say which interface to name instead, and what is wrong with an address.
func TestAddressErrors(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 2})
	in(t, l, 0, "ip address flush dev xr0", "ip link add br0 type bridge", "ip link set xr0 master br0", "ip link set br0 up",
		"ip address add 10.77.0.1/24 dev br0", "ip address add fe80::1/64 dev xr0 nodad", // which a bridge lets nothing through to
		"ip link add one type veth peer name two", "ip link add none type veth peer name other",
		"ip link set one up", "ip link set two up", "ip link set none up", "ip link set other up",
		"ip address add fe80::7/64 dev one nodad", "ip address add fe80::7/64 dev two nodad")
	at := netip.MustParseAddr
	for want, c := range map[string]Config{
		"xr0 is a port of bridge br0, which has the address 10.77.0.1: name br0 in its place": {Config: userspace.Config{Interface: "xr0"}},
		"xr0 is a port of bridge br0, which":                                                  {Config: userspace.Config{Interface: "xr0", Address: at("10.77.0.1")}},
		"interface none has no address: give it one":                                          {Config: userspace.Config{Interface: "none"}},
		"interface none does not have the address 10.77.0.1":                                  {Config: userspace.Config{Interface: "none", Address: at("10.77.0.1")}},
		"no interface has the address fe80::7%none":                                           {Config: userspace.Config{Address: at("fe80::7%none")}},
		"the interfaces two and one have the address fe80::7":                                 {Config: userspace.Config{Address: at("fe80::7")}},
		"fe80::7%one is of interface one by its zone":                                         {Config: userspace.Config{Interface: "two", Address: at("fe80::7%one")}},
	} {
		for _, transport := range []userspace.Transport{userspace.XDP, userspace.UDP} {
			c.Transport = transport
			if _, err := openAt(t.Context(), l, c); !errors.Is(err, mpierr.Arg) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, want %q: %v", transport, want, err)
			}
		}
	}
	for _, transport := range []userspace.Transport{userspace.XDP, userspace.UDP} { // what the first error advises
		dev, err := openAt(t.Context(), l, Config{Config: userspace.Config{Transport: transport, Interface: "br0"}})
		if err != nil {
			t.Errorf("%s on the bridge: %v", transport, err)
			continue
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestPresent names interfaces and addresses that this host has, and has not.
func TestPresent(t *testing.T) {
	at := netip.MustParseAddr
	for want, c := range map[string]userspace.Config{
		"":                                   {},
		"interface xr-none: ":                {Interface: "xr-none"},
		"no interface has the address":       {Address: at("192.0.2.1")},
		"interface lo does not have":         {Interface: "lo", Address: at("192.0.2.1")},
		"(`ip link` lists those there are)":  {Interface: "xr-none", Address: at("127.0.0.1")},
		"no interface has the address fe80:": {Address: at("fe80::7%lo")},
	} {
		err := Present(t.Context(), &c)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || mpierr.ClassOf(err) != mpierr.Arg) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
	for _, c := range []userspace.Config{{Interface: "lo"}, {Address: at("127.0.0.1")}, {Interface: "lo", Address: at("127.0.0.77")}} {
		if err := Present(t.Context(), &c); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	carried := WithFactory(t.Context(), func(Config) (Device, error) { return nil, nil })
	if err := Present(carried, &userspace.Config{Interface: "xr-none"}); err != nil {
		t.Errorf("no network carries the job: %v", err)
	}
}
