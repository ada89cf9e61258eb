package device

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/logs"
	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/userspace"
)

// linkMessage is a struct ifinfomsg.
func linkMessage(family byte, index, flags uint32) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	b[0] = family
	binary.NativeEndian.PutUint32(b[4:], index)
	binary.NativeEndian.PutUint32(b[8:], flags)
	return b
}

// addressMessage is a struct ifaddrmsg with attributes, each of a kind and with an address.
func addressMessage(index uint32, attributes ...any) []byte {
	b := make([]byte, unix.SizeofIfAddrmsg)
	binary.NativeEndian.PutUint32(b[4:], index)
	for i := 0; i < len(attributes); i += 2 {
		ip := netip.MustParseAddr(attributes[i+1].(string)).AsSlice()
		b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(ip)))
		b = binary.NativeEndian.AppendUint16(b, uint16(attributes[i].(int)))
		b = append(b, ip...)
	}
	return b
}

func TestLinkMessages(t *testing.T) {
	const up = unix.IFF_UP | unix.IFF_LOWER_UP
	errno := func(e unix.Errno) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(-int32(e))) }
	for _, c := range []struct {
		name string
		kind uint16
		data []byte
		want string // in the log, or empty
		lost bool
	}{
		{"removed", unix.RTM_DELLINK, linkMessage(0, 7, up), "device is lost", true},
		{"gone when asked for", unix.NLMSG_ERROR, errno(unix.ENODEV), "device is lost", true},
		{"another error", unix.NLMSG_ERROR, errno(unix.EBUSY), "", false},
		{"no error at all", unix.NLMSG_ERROR, nil, "", false},
		{"another interface is removed", unix.RTM_DELLINK, linkMessage(0, 8, 0), "", false},
		{"removed from a bridge", unix.RTM_DELLINK, linkMessage(unix.AF_BRIDGE, 7, up), "", false},
		{"cut short", unix.RTM_DELLINK, linkMessage(0, 7, up)[:8], "", false},
		{"set down", unix.RTM_NEWLINK, linkMessage(0, 7, 0), "is down", false},
		{"without a carrier", unix.RTM_NEWLINK, linkMessage(0, 7, unix.IFF_UP), "is down", false},
		{"up as before", unix.RTM_NEWLINK, linkMessage(0, 7, up), "", false},
		{"something else", unix.RTM_NEWROUTE, linkMessage(0, 7, 0), "", false},
		{"its address is removed", unix.RTM_DELADDR, addressMessage(7, unix.IFA_ADDRESS, "fd77::7"), "net.ipv6.conf.xr7.keep_addr_on_down", false},
		{"its end of a link is removed", unix.RTM_DELADDR, addressMessage(7, unix.IFA_LOCAL, "fd77::7", unix.IFA_ADDRESS, "fd77::8"), "was removed", false},
		{"the other end is its address", unix.RTM_DELADDR, addressMessage(7, unix.IFA_ADDRESS, "fd77::7", unix.IFA_LOCAL, "fd77::8"), "", false},
		{"another address is removed", unix.RTM_DELADDR, addressMessage(7, unix.IFA_ADDRESS, "fd77::8"), "", false},
		{"another interface's address is removed", unix.RTM_DELADDR, addressMessage(8, unix.IFA_ADDRESS, "fd77::7"), "", false},
		{"no address is removed", unix.RTM_DELADDR, addressMessage(7), "", false},
		{"an address is cut short", unix.RTM_DELADDR, addressMessage(7)[:6], "", false},
		{"its address as before", unix.RTM_NEWADDR, addressMessage(7, unix.IFA_ADDRESS, "fd77::7"), "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log logs.Log
			l := link{name: "xr7", index: 7, addr: netip.MustParseAddr("fd77::7"), log: log.Logger()}
			l.begin()
			for range 3 {
				l.take(c.kind, c.data)
			}
			lines := log.Lines()
			if c.want == "" && lines != 0 || c.want != "" && (lines != 1 || log.Lines(c.want) != 1) {
				t.Errorf("want %q once: %v", c.want, &log)
			}
			if why := context.Cause(l.alive); (why != nil) != c.lost || l.lost() != c.lost {
				t.Errorf("it is lost: %v", why)
			}
		})
	}
}

// A link that goes down and comes up again is told of in one line each, and loses
// nothing for good.
func TestLinkThatFlapsIsToldOnce(t *testing.T) {
	for _, transport := range []userspace.Transport{userspace.XDPNative, userspace.UDP} {
		t.Run(string(transport), func(t *testing.T) {
			l := labtest.New(t, netlab.Config{Ranks: 2})
			var log logs.Log
			var dev Device
			err := l.Do(0, func() (err error) {
				dev, err = Open(t.Context(), Config{Config: userspace.Config{Transport: transport, Interface: l.Interface(0)}, Slots: 128, Logger: log.Logger()})
				return err
			})
			a := newEnd(t, dev, err)
			set := func(state string) {
				if out, err := l.Command(0, "ip", "link", "set", l.Interface(0), state).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			for n := 1; n <= 2; n++ {
				set("down")
				testenv.Await(t, "a line that the link is down", func() bool { return log.Lines("interface is down") == n })
				dev.Transmit()
				set("up")
				testenv.Await(t, "a line that the link is up", func() bool { return log.Lines("is up again") == n })
			}
			a.close() // and the log is complete
			if n := log.Lines("the link of the interface"); n != 4 || dev.Facts().Alive.Err() != nil {
				t.Errorf("%d lines, lost: %v: %v", n, context.Cause(dev.Facts().Alive), &log)
			}
		})
	}
}

// A link without a carrier is waited for, so that no peer is told of a rank that cannot be
// reached, but not for ever.
func TestOpenWaitsForACarrier(t *testing.T) {
	defer func(was time.Duration) { carrierPatience = was }(carrierPatience)
	carrierPatience = testenv.Limit
	l := labtest.New(t, netlab.Config{Ranks: 2})
	for _, transport := range []userspace.Transport{userspace.XDPNative, userspace.XDPGeneric, userspace.UDP} {
		t.Run(string(transport), func(t *testing.T) {
			in(t, l, 1, "ip link set xr1 down")
			var log logs.Log
			c := Config{Config: userspace.Config{Transport: transport, Interface: "xr0"}, Logger: log.Logger()}
			ctx, cancel := context.WithCancel(t.Context())
			given := testenv.Start(func() error {
				dev, err := openAt(ctx, l, c)
				if err == nil {
					_ = dev.Close()
				}
				return err
			})
			testenv.Await(t, "a line that the link is down", func() bool { return log.Lines("interface is down") == 1 })
			cancel()
			if err := testenv.Ends(t, "the opening", given); !errors.Is(err, context.Canceled) {
				t.Errorf("when the context ends: %v", err)
			}
			var dev Device
			opened := testenv.Start(func() (err error) {
				dev, err = openAt(t.Context(), l, c)
				return err
			})
			testenv.Await(t, "another line that the link is down", func() bool { return log.Lines("interface is down") == 2 })
			in(t, l, 1, "ip link set xr1 up")
			if err := testenv.Ends(t, "the opening", opened); err != nil {
				t.Fatal(err)
			}
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	in(t, l, 1, "ip link set xr1 down")
	carrierPatience = 0
	dev, err := openAt(t.Context(), l, Config{Config: userspace.Config{Interface: "xr0"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}

// An address that leaves the interface is told of in one line, and so is its return: the
// kernel removes those of IPv6 when the interface is set down, unless it is told not to.
func TestLostAddressIsTold(t *testing.T) {
	const gone, back = "the address of this rank was removed", "has the address of this rank again"
	for _, transport := range []userspace.Transport{userspace.XDPNative, userspace.UDP} {
		t.Run(string(transport), func(t *testing.T) {
			l := labtest.New(t, netlab.Config{Ranks: 2})
			var log logs.Log
			dev, err := openAt(t.Context(), l, Config{Config: userspace.Config{Transport: transport, Interface: "xr0", Address: l.Addr6(0)}, Logger: log.Logger()})
			if err != nil {
				t.Fatal(err)
			}
			in(t, l, 0, "ip address add fd77::77/64 dev xr0 nodad", "ip address del fd77::77/64 dev xr0") // another one
			for n := 1; n <= 2; n++ {
				in(t, l, 0, "ip link set xr0 down")
				testenv.Await(t, "a line that the address is gone", func() bool { return log.Lines(gone) == n })
				in(t, l, 0, "ip link set xr0 up", "ip address add fd77::1/64 dev xr0 nodad")
				testenv.Await(t, "a line that the address is back", func() bool { return log.Lines(back) == n })
			}
			in(t, l, 0, "sysctl -q -w net.ipv6.conf.xr0.keep_addr_on_down=1", "ip link set xr0 down") // as the line advises
			testenv.Await(t, "a line that the link is down", func() bool { return log.Lines("interface is down") == 3 })
			in(t, l, 0, "ip link set xr0 up")
			testenv.Await(t, "a line that the link is up", func() bool { return log.Lines("is up again") == 3 })
			if err := dev.Close(); err != nil { // and the log is complete
				t.Error(err)
			}
			if log.Lines(gone) != 2 || log.Lines(back) != 2 {
				t.Errorf("the log: %v", &log)
			}
		})
	}
}

// A device whose interface has gone before it is watched is lost from the start.
func TestLinkThatIsGoneAtOpen(t *testing.T) {
	l := labtest.New(t, netlab.Config{Ranks: 1})
	var log logs.Log
	var watch link
	err := l.Do(0, func() error {
		ifi, err := net.InterfaceByName(l.Interface(0))
		if err != nil {
			return err
		}
		ifi.Index += 1000
		return watch.open(ifi, l.Addr(0), log.Logger())
	})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, "the look at the interface", watch.lost)
	if err := watch.close(); err != nil {
		t.Error(err)
	}
}
