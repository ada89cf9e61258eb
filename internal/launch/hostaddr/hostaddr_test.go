package hostaddr

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	deprecated = unix.IFA_F_DEPRECATED
	temporary  = unix.IFA_F_TEMPORARY // of IPv4: secondary
	tentative  = unix.IFA_F_TENTATIVE
	optimistic = unix.IFA_F_OPTIMISTIC
	failed     = unix.IFA_F_DADFAILED
)

func at(text string, flags int) Address {
	prefix := netip.MustParsePrefix(text)
	return Address{IP: prefix.Addr(), Prefix: prefix, Link: 2, Flags: flags}
}

func onLink(text string) Address {
	a := at(text, 0)
	a.Scope = unix.RT_SCOPE_LINK
	return a
}

func TestChoose(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.9.9.9"), netip.MustParseAddr("fd99::9")
	for _, c := range []struct {
		name     string
		list     []Address
		near     netip.Addr
		want     string // empty: none
		expected string // once nothing is tentative; empty: the same
	}{
		{name: "none"},
		{name: "the kernel's order", list: []Address{at("10.0.0.2/24", 0), at("10.0.0.1/24", 0)}, want: "10.0.0.2"},
		{name: "the kernel's order, IPv6", list: []Address{at("fd00::2/64", 0), at("fd00::1/64", 0)}, want: "fd00::2"},
		{name: "IPv4 first", list: []Address{at("fd00::1/64", 0), at("10.0.0.1/24", 0)}, want: "10.0.0.1"},
		{name: "the family of the rendezvous, IPv6", list: []Address{at("10.0.0.1/24", 0), at("fd00::1/64", 0)}, near: v6, want: "fd00::1"},
		{name: "the family of the rendezvous, IPv4", list: []Address{at("fd00::1/64", 0), at("10.0.0.1/24", 0)}, near: v4, want: "10.0.0.1"},
		{name: "the family of the rendezvous in its long form", list: []Address{at("fd00::1/64", 0), at("10.0.0.1/24", 0)},
			near: netip.MustParseAddr("::ffff:10.9.9.9"), want: "10.0.0.1"},
		{name: "another family than the rendezvous's", list: []Address{at("10.0.0.1/24", 0)}, near: v6, want: "10.0.0.1"},
		{name: "the family before the range", list: []Address{at("fd00::1/64", 0), at("169.254.7.7/16", 0)}, near: v4, want: "169.254.7.7"},
		{name: "routable first, IPv4", list: []Address{at("169.254.7.7/16", 0), at("10.0.0.1/24", 0)}, want: "10.0.0.1"},
		{name: "routable first, IPv6", list: []Address{at("fe80::1/64", 0), at("fd00::1/64", 0)}, want: "fd00::1"},
		{name: "routable IPv6 before IPv4 of the link", list: []Address{at("169.254.7.7/16", 0), at("fd00::1/64", 0)}, want: "fd00::1"},
		{name: "a scope of the link", list: []Address{onLink("10.0.0.1/24"), at("10.0.0.2/24", 0)}, want: "10.0.0.2"},
		{name: "of the link alone", list: []Address{at("fe80::1/64", 0)}, want: "fe80::1"},
		{name: "of the link alone, both families", list: []Address{at("fe80::1/64", 0), at("169.254.7.7/16", 0)}, want: "169.254.7.7"},
		{name: "deprecated", list: []Address{at("fd00::1/64", deprecated), at("fd00::2/64", 0)}, want: "fd00::2"},
		{name: "deprecated, IPv4", list: []Address{at("10.0.0.1/24", deprecated), at("fd00::2/64", 0)}, want: "fd00::2"},
		{name: "deprecated, and of the link", list: []Address{at("fe80::1/64", 0), at("fd00::1/64", deprecated)}, want: "fd00::1"},
		{name: "temporary", list: []Address{at("fd00::1/64", temporary), at("fd00::2/64", 0)}, want: "fd00::2"},
		{name: "temporary or deprecated", list: []Address{at("fd00::1/64", deprecated), at("fd00::2/64", temporary)}, want: "fd00::2"},
		{name: "temporary alone", list: []Address{at("fd00::1/64", temporary)}, want: "fd00::1"},
		{name: "secondary", list: []Address{at("10.0.0.1/24", temporary), at("10.0.0.2/24", 0)}, want: "10.0.0.1"},
		{name: "tentative", list: []Address{at("fd00::1/64", tentative), at("fe80::1/64", 0)}, want: "fe80::1", expected: "fd00::1"},
		{name: "tentative alone", list: []Address{at("fd00::1/64", tentative)}, expected: "fd00::1"},
		{name: "tentative, and not needed", list: []Address{at("fd00::1/64", tentative), at("10.0.0.1/24", 0)}, want: "10.0.0.1"},
		{name: "optimistic", list: []Address{at("fd00::1/64", tentative|optimistic)}, want: "fd00::1"},
		{name: "taken by another machine", list: []Address{at("fd00::1/64", tentative|failed), at("fe80::1/64", 0)}, want: "fe80::1"},
		{name: "taken by another machine alone", list: []Address{at("fd00::1/64", failed)}},
		{name: "of no one machine", list: []Address{at("0.0.0.0/0", 0), at("224.0.0.1/4", 0), at("ff02::1/16", 0), at("::/0", 0)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			check := func(when string, a Address, ok bool, want string) {
				t.Helper()
				if ok != (want != "") || ok && a.IP.String() != want {
					t.Errorf("%s: %v, %v, want %q", when, a.IP, ok, want)
				}
			}
			a, ok := Choose(c.list, c.near)
			check("now", a, ok, c.want)
			if c.expected == "" {
				c.expected = c.want
			}
			a, ok = Expected(c.list, c.near)
			check("expected", a, ok, c.expected)
		})
	}
}

func TestUsableSaysWhyNot(t *testing.T) {
	for _, c := range []struct {
		address Address
		want    string // empty: usable
	}{
		{at("10.0.0.1/24", 0), ""},
		{at("fd00::1/64", deprecated|temporary), ""},
		{at("fd00::1/64", tentative), "fd00::1 is tentative"},
		{at("fd00::1/64", tentative|failed), "fd00::1 is another machine's too"},
		{at("224.0.0.1/4", 0), "224.0.0.1 is not the address of one machine"},
	} {
		err := c.address.Usable()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v, flags %#x: %v, want %q", c.address.IP, c.address.Flags, err, c.want)
		}
	}
}

func TestLastingReplacesPassingAddresses(t *testing.T) {
	elsewhere := at("fd00::9/64", 0)
	elsewhere.Link = 3
	list := []Address{at("10.0.0.1/24", deprecated), at("10.0.0.2/24", temporary), elsewhere, at("fd11::2/64", 0),
		at("fd00::1/64", temporary), at("fd00::2/64", deprecated), at("fd00::3/64", 0), at("fd22::1/64", temporary)}
	for ip, want := range map[string]string{
		"10.0.0.1": "10.0.0.2", "10.0.0.2": "10.0.0.2", "fd11::2": "fd11::2",
		"fd00::1": "fd00::3", "fd00::2": "fd00::3", "fd00::3": "fd00::3", "fd22::1": "fd22::1", "fd33::1": "fd33::1",
	} {
		if got := Lasting(list, netip.MustParseAddr(ip)); got.String() != want {
			t.Errorf("in place of %s: %v, want %s", ip, got, want)
		}
	}
}

func TestListHasLoopback(t *testing.T) {
	list, err := List()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		if a.IP.String() == "127.0.0.1" && a.Prefix.String() == "127.0.0.1/8" && a.Link > 0 && a.Scope == unix.RT_SCOPE_HOST {
			return
		}
	}
	t.Errorf("no 127.0.0.1/8 of the host's own in %+v", list)
}
