//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/xdprma/xdprma/vmtests/machines/plan"
)

// pair is two namespaces with an interface each, which are joined.
type pair struct {
	plan   *plan.Pair
	spaces [2]netns.NsHandle
}

// trunk is the name of an interface below a VLAN interface.
const trunk = "trunk"

func lockForGood() { runtime.LockOSThread() }

// address is that of a rank's interface.
func address(id int) string { return fmt.Sprintf("10.77.0.%d", id+1) }

// tells returns a rank's environment.
func (p *pair) tells(id int) []string {
	return []string{
		fmt.Sprintf("XDPRMA_RANK=%d", id), "XDPRMA_SIZE=2", "XDPRMA_JOB=c0ffee", "XDPRMA_RENDEZVOUS=" + address(0) + ":7000",
		"XDPRMA_INTERFACE=" + plan.Interface,
	}
}

// join makes the namespaces and their interfaces.
func join(want *plan.Pair) (*pair, error) {
	p := &pair{plan: want}
	links, err := ends(want)
	if err != nil {
		return nil, err
	}
	for id, l := range links {
		if p.spaces[id], err = newSpace(); err != nil {
			return nil, err
		}
		if err := netlink.LinkSetNsFd(l, int(p.spaces[id])); err != nil {
			return nil, err
		}
		if err := within(p.spaces[id], func() error { return p.setUp(id, l.Attrs().Name) }); err != nil {
			return nil, fmt.Errorf("set up interface %s: %w", l.Attrs().Name, err)
		}
	}
	for id := range links {
		if err := within(p.spaces[id], p.awaitCarrier); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func newSpace() (ns netns.NsHandle, err error) {
	result := make(chan error)
	go func() {
		lockForGood()
		ns, err = netns.New()
		result <- err
	}()
	return ns, <-result
}

// ends returns the two interfaces, of which the machine has no others.
func ends(want *plan.Pair) (ends []netlink.Link, err error) {
	if want.Veth {
		err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "end0"}, PeerName: "end1"})
		if err != nil {
			return nil, err
		}
	}
	all, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		veth := strings.HasPrefix(l.Attrs().Name, "end")
		if (l.Type() == "device" && !want.Veth || veth && want.Veth) && l.Attrs().Flags&net.FlagLoopback == 0 {
			ends = append(ends, l)
		}
	}
	slices.SortFunc(ends, func(a, b netlink.Link) int { return strings.Compare(a.Attrs().Name, b.Attrs().Name) })
	if len(ends) != 2 {
		return nil, fmt.Errorf("the machine has %d network interfaces and not 2: its kernel may have no driver for them", len(ends))
	}
	return ends, nil
}

// setUp configures an interface in its namespace.
func (p *pair) setUp(id int, name string) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	own := plan.Interface
	if p.plan.VLAN != 0 {
		own = trunk
	}
	addr, err := netlink.ParseAddr(address(id) + "/24")
	if err != nil {
		return err
	}
	err = errors.Join(netlink.LinkSetUp(lo), netlink.LinkSetName(link, own), netlink.LinkSetMTU(link, p.plan.MTU), netlink.LinkSetUp(link))
	if err == nil && p.plan.VLAN != 0 {
		vlan := &netlink.Vlan{LinkAttrs: netlink.LinkAttrs{Name: plan.Interface, ParentIndex: link.Attrs().Index}, VlanId: p.plan.VLAN}
		err = errors.Join(netlink.LinkAdd(vlan), netlink.LinkSetUp(vlan))
		link = vlan
	}
	if err == nil {
		err = netlink.AddrAdd(link, addr)
	}
	if err == nil && p.plan.RDMA {
		err = netlink.RdmaLinkAdd(fmt.Sprintf("rxe%d", id), "rxe", plan.Interface)
	}
	return err
}

// awaitCarrier waits until the interface can send: a driver takes a while.
func (p *pair) awaitCarrier() error {
	for range 1000 {
		l, err := netlink.LinkByName(plan.Interface)
		if err != nil {
			return err
		}
		if l.Attrs().OperState == netlink.OperUp || l.Attrs().OperState == netlink.OperUnknown {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("interface %s has no carrier after 10 s", plan.Interface)
}

// part takes the interfaces back, and ends the namespaces.
func (p *pair) part() (err error) {
	own, err := netns.Get()
	if err != nil {
		return err
	}
	defer own.Close()
	for id, ns := range p.spaces {
		err = errors.Join(err, within(ns, func() error { return p.giveBack(id, own) }), ns.Close())
	}
	return err
}

// giveBack moves an interface back to where join found it. A veth and a VLAN interface end.
func (p *pair) giveBack(id int, to netns.NsHandle) error {
	name := plan.Interface
	if p.plan.VLAN != 0 {
		name = trunk
	}
	link, err := netlink.LinkByName(name)
	var absent netlink.LinkNotFoundError
	if p.plan.Veth {
		if errors.As(err, &absent) { // it went with its other end
			return nil
		}
		return errors.Join(err, netlink.LinkDel(link)) // and what is above it
	}
	if err == nil && p.plan.VLAN != 0 {
		var vlan netlink.Link
		if vlan, err = netlink.LinkByName(plan.Interface); err == nil {
			err = netlink.LinkDel(vlan)
		}
	}
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetDown(link), netlink.LinkSetName(link, fmt.Sprintf("nic%d", id)), netlink.LinkSetNsFd(link, int(to)))
}
