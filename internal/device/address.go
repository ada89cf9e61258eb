package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/xdprma/xdprma/internal/launch/hostaddr"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

// settlePatience is how long a device waits for an address that is tentative. The kernel
// takes up to two seconds, unless the link is down.
var settlePatience = 5 * time.Second

const settlePause = 50 * time.Millisecond // between looks at the addresses

// zoned returns ip as the kernel wants it: a link-local address of IPv6 with the interface
// on which it is, and others without.
func zoned(ip netip.Addr, index int) netip.Addr {
	if ip.Is6() && ip.IsLinkLocalUnicast() {
		return ip.WithZone(strconv.Itoa(index))
	}
	return ip.WithZone("")
}

// Present returns an error unless this host has the interface and the address that c names, the
// address being one of the interface's. A name that c leaves out is not looked for. It does not block.
func Present(ctx context.Context, c *userspace.Config) error {
	if _, ok := ctx.Value(factoryKey{}).(Factory); ok || c.Interface == "" && !c.Address.IsValid() {
		return nil
	}
	ifi, err := interfaceFor(c)
	if err != nil {
		return openError(mpierr.Arg, err)
	}
	ip := c.Address.WithZone("")
	if !ip.IsValid() || ip.IsLoopback() {
		return nil
	}
	all, err := hostaddr.List()
	if err != nil {
		return openError(mpierr.Unsupported, err)
	}
	if !slices.ContainsFunc(hostaddr.OnLink(all, ifi.Index), func(a hostaddr.Address) bool { return a.IP == ip }) {
		return openError(mpierr.Arg, noAddress(ifi, ip, nil, all))
	}
	return nil
}

// notOfRank says why no rank that a device at local reaches has the address addr.
func notOfRank(addr, local netip.AddrPort) error {
	if addr.Addr().Is4() == local.Addr().Is4() {
		return errors.New("it is not the address and port of one rank")
	}
	return fmt.Errorf("IPv4 does not reach IPv6, and this rank is at %v: give all ranks addresses of one family", local)
}

// interfaceFor returns the interface that c names, or the one of its address.
func interfaceFor(c *userspace.Config) (*net.Interface, error) {
	if c.Interface == "" {
		return interfaceOf(c.Address)
	}
	ifi, err := net.InterfaceByName(c.Interface)
	if err != nil {
		err = fmt.Errorf("interface %s: %w (`ip link` lists those there are)", c.Interface, err)
	}
	return ifi, err
}

// addressOf returns the address of ifi, without a zone, at which peers reach a device:
// ip, if that is valid and one of ifi, or else the one that hostaddr.Choose prefers. It
// waits for it while it is tentative, for up to settlePatience or until ctx ends.
func addressOf(ctx context.Context, ifi *net.Interface, ip, near netip.Addr) (netip.Addr, error) {
	if zone := ip.Zone(); zone != "" && zone != ifi.Name && zone != strconv.Itoa(ifi.Index) {
		return ip, fmt.Errorf("the address %v is of interface %s by its zone, and the interface is to be %s: name one of them alone", ip, zone, ifi.Name)
	}
	if ip = ip.WithZone(""); ip.IsLoopback() && ifi.Flags&net.FlagLoopback != 0 {
		return ip, nil // all of 127.0.0.0/8 is its
	}
	for begun := time.Now(); ; {
		all, err := hostaddr.List()
		if err != nil {
			return ip, err
		}
		own := slices.DeleteFunc(hostaddr.OnLink(all, ifi.Index), func(a hostaddr.Address) bool { return ip.IsValid() && a.IP != ip })
		best, ok := hostaddr.Choose(own, near)
		switch expected, soon := hostaddr.Expected(own, near); {
		case soon && !(ok && best.IP == expected.IP) && time.Since(begun) < settlePatience:
		case ok && !ip.IsValid() && best.IP.IsLinkLocalUnicast(): // a port may have one too, which is of no use
			return best.IP, portOf(ifi, all)
		case ok:
			return best.IP, nil
		default:
			return ip, noAddress(ifi, ip, own, all)
		}
		select {
		case <-time.After(settlePause):
		case <-ctx.Done():
			return ip, fmt.Errorf("%w, while an address of interface %s was tentative", ctx.Err(), ifi.Name)
		}
	}
}

// noAddress says why ifi has no address to use, or not ip, if that is valid. Own has the
// candidates, and all the addresses of all interfaces.
func noAddress(ifi *net.Interface, ip netip.Addr, own, all []hostaddr.Address) error {
	if len(own) > 0 {
		return fmt.Errorf("interface %s: %w", ifi.Name, own[0].Usable())
	}
	if err := portOf(ifi, all); err != nil {
		return err
	}
	if !ip.IsValid() {
		return fmt.Errorf("interface %s has no address: give it one", ifi.Name)
	}
	return fmt.Errorf("interface %s does not have the address %v (`ip address` lists those there are)", ifi.Name, ip)
}

// portOf returns an error if ifi is part of a bridge or the like, which has addresses in
// its place, and nil otherwise.
func portOf(ifi *net.Interface, all []hostaddr.Address) error {
	port, err := netlink.LinkByIndex(ifi.Index)
	if err != nil || port.Attrs().MasterIndex == 0 {
		return nil // noAddress has another reason to tell
	}
	master, err := netlink.LinkByIndex(port.Attrs().MasterIndex)
	if err != nil || master.Type() == "vrf" { // whose ports have addresses of their own
		return nil
	}
	name := master.Attrs().Name
	has, ok := hostaddr.Choose(hostaddr.OnLink(all, master.Attrs().Index), netip.Addr{})
	if !ok {
		return nil
	}
	return fmt.Errorf("interface %s is a port of %s %s, which has the address %v: name %s in its place", ifi.Name, master.Type(), name, has.IP, name)
}

// interfaceOf returns the interface that has the address ip. All of 127.0.0.0/8
// is the loopback interface's.
func interfaceOf(ip netip.Addr) (*net.Interface, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the interfaces: %w", err)
	}
	all, err := hostaddr.List()
	if err != nil {
		return nil, err
	}
	var found []*net.Interface
	for i := range interfaces {
		ifi := &interfaces[i]
		if zone := ip.Zone(); zone != "" && zone != ifi.Name && zone != strconv.Itoa(ifi.Index) {
			continue
		}
		has := slices.ContainsFunc(hostaddr.OnLink(all, ifi.Index), func(a hostaddr.Address) bool { return a.IP == ip.WithZone("") })
		if has || ip.IsLoopback() && ifi.Flags&net.FlagLoopback != 0 {
			found = append(found, ifi)
		}
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("no interface has the address %v (`ip address` lists those there are)", ip)
	case len(found) > 1 && ip.Is6() && ip.IsLinkLocalUnicast():
		return nil, fmt.Errorf("the interfaces %s and %s have the address %v both: name one of them too, as in %v%%%s", found[0].Name, found[1].Name, ip, ip, found[0].Name)
	}
	return found[0], nil
}
