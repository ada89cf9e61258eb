// Package hostaddr chooses, among the addresses of an interface, the one at which other
// ranks reach this one.
package hostaddr

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Address is an address of an interface, with what the kernel says of it.
type Address struct {
	IP     netip.Addr // without a zone
	Prefix netip.Prefix
	Link   int // the index of its interface
	Flags  int // IFA_F_*
	Scope  int // RT_SCOPE_*
}

// Choose returns the address of a list, which is in the kernel's order, at which a rank is
// to be reached, and false if none is usable. Near is an address on the network that the
// job's ranks share, such as the rendezvous's; without one it is not valid.
//
// Of the usable addresses, these come first, and an earlier line decides before a later
// one:
//
//   - those of the family of near;
//   - routable ones, before those that mean something on their link alone (169.254.0.0/16,
//     fe80::/10, and those whose scope says so);
//   - those that are not deprecated;
//   - permanent ones, before temporary ones of IPv6;
//   - IPv4, before IPv6;
//   - those that the kernel lists earlier.
func Choose(list []Address, near netip.Addr) (Address, bool) {
	best, least := Address{}, math.MaxInt
	for _, a := range list {
		if c := a.cost(near); a.Usable() == nil && c < least {
			best, least = a, c
		}
	}
	return best, least != math.MaxInt
}

// cost orders usable addresses; the least is the best.
func (a Address) cost(near netip.Addr) (cost int) {
	for _, worse := range [...]bool{
		near.IsValid() && a.IP.Is4() != near.Unmap().Is4(),
		a.IP.IsLinkLocalUnicast() || a.Scope >= unix.RT_SCOPE_LINK,
		a.deprecated(),
		a.temporary(),
		a.IP.Is6(),
	} {
		if cost <<= 1; worse {
			cost |= 1
		}
	}
	return cost
}

func (a Address) deprecated() bool { return a.Flags&unix.IFA_F_DEPRECATED != 0 }

// temporary reports whether a is one of the addresses that privacy extensions change. The
// flag means something else for IPv4.
func (a Address) temporary() bool { return a.IP.Is6() && a.Flags&unix.IFA_F_TEMPORARY != 0 }

// Tentative reports whether the kernel lets nobody use a yet.
func (a Address) Tentative() bool {
	return a.Flags&unix.IFA_F_TENTATIVE != 0 && a.Flags&(unix.IFA_F_OPTIMISTIC|unix.IFA_F_DADFAILED) == 0
}

// Expected is Choose for the time when no address is tentative any more.
func Expected(list []Address, near netip.Addr) (Address, bool) {
	list = slices.Clone(list)
	for i := range list {
		list[i].Flags &^= unix.IFA_F_TENTATIVE
	}
	return Choose(list, near)
}

// Usable returns nil if a rank can be reached at a, or an error that says why not.
func (a Address) Usable() error {
	switch {
	case a.IP.IsUnspecified() || a.IP.IsMulticast():
		return fmt.Errorf("%v is not the address of one machine", a.IP)
	case a.Flags&unix.IFA_F_DADFAILED != 0:
		return fmt.Errorf("the address %v is another machine's too: duplicate address detection has failed; remove it from one of the two", a.IP)
	case a.Tentative():
		return fmt.Errorf("the address %v is tentative: duplicate address detection is under way, which takes a second or two once the link is up; "+
			"wait for it, or add the address without it (`ip address add … nodad`)", a.IP)
	}
	return nil
}

// Lasting returns what to use in place of ip, which the kernel has proposed: ip itself,
// unless it is temporary or deprecated and a lasting one is on the same interface and
// network. List has the addresses of all interfaces.
func Lasting(list []Address, ip netip.Addr) netip.Addr {
	i := slices.IndexFunc(list, func(a Address) bool { return a.IP == ip && (a.temporary() || a.deprecated()) })
	if i < 0 {
		return ip
	}
	proposed := list[i]
	better, _ := Choose(slices.DeleteFunc(slices.Clone(list), func(a Address) bool {
		return a.Link != proposed.Link || a.Prefix.Masked() != proposed.Prefix.Masked()
	}), ip)
	if better.IP.IsValid() {
		return better.IP
	}
	return ip
}

// OnLink returns those of a list that are of the interface with an index.
func OnLink(list []Address, index int) []Address {
	return slices.DeleteFunc(slices.Clone(list), func(a Address) bool { return a.Link != index })
}

// List returns all addresses of the goroutine's network namespace, those of one interface
// in the kernel's order. It does not block.
func List() ([]Address, error) {
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	for tries := 0; errors.Is(err, netlink.ErrDumpInterrupted) && tries < 10; tries++ { // the list changed meanwhile
		addrs, err = netlink.AddrList(nil, netlink.FAMILY_ALL)
	}
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list the addresses of the interfaces: %w", err)
	}
	var list []Address
	for _, a := range addrs {
		ip, ok := netip.AddrFromSlice(a.IP)
		if !ok {
			continue
		}
		bits, _ := a.Mask.Size()
		list = append(list, Address{IP: ip, Prefix: netip.PrefixFrom(ip, bits), Link: a.LinkIndex, Flags: a.Flags, Scope: a.Scope})
	}
	return list, nil
}
