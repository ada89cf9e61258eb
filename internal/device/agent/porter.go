package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/mpierr"
)

// porter lets ranks in and out. One goroutine uses it. It has the executor, and a switch on each interface for as long as
// a rank there is served.
type porter struct {
	log      *slog.Logger
	executor *loader.Executor // nil until the first rank enters
	lanes    map[site]*lane
}

// site is an interface.
type site struct {
	dev, inode uint64 // of its network namespace
	index      int
}

// lane is the switch of an interface.
type lane struct {
	*loader.Switch
	site      site
	namespace int // a descriptor of it
	guests    int
	away      bool // somebody has taken the switch away
}

// errand is what the porter has to do for a rank.
type errand struct {
	enters, leaves *guest
	socket         int // of who enters
	ifindex, slots int

	mode loader.Mode // the porter's answer
	err  error
	done chan struct{}
}

// carry carries out errands.
func (p *porter) carry(list []*errand) {
	var leaving []*loader.Member
	for _, e := range list {
		if e.leaves != nil {
			leaving = append(leaving, e.leaves.place)
		}
	}
	if len(leaving) > 0 {
		if err := p.executor.Leave(leaving); err != nil {
			p.log.Warn("the places of ranks that have left cannot be given to others", "ranks", len(leaving), "error", err)
		}
	}
	for _, e := range list {
		if e.leaves != nil {
			p.leave(e.leaves.lane)
		}
	}
	var entering []*errand
	var entries []loader.Entry
	for _, e := range list {
		if e.enters == nil {
			continue
		}
		entry, err := p.admit(e)
		if e.err = err; err == nil {
			entering, entries = append(entering, e), append(entries, entry)
		}
	}
	if len(entries) == 0 {
		return
	}
	places, errs := p.executor.Enter(entries)
	for i, e := range entering {
		e.enters.place, e.err, e.mode = places[i], errs[i], p.executor.Mode()
		if e.err != nil {
			p.leave(e.enters.lane)
		}
	}
}

// admit looks whether a rank may enter, and sees to the switch of its interface.
func (p *porter) admit(e *errand) (entry loader.Entry, err error) {
	at, err := nameOf(e.socket, e.ifindex)
	if err != nil {
		return entry, badRequest("its socket: %w", err)
	}
	namespace, err := unix.IoctlRetInt(e.socket, unix.SIOCGSKNS)
	if err != nil {
		return entry, badRequest("find the network namespace of its socket: %w", err)
	}
	defer unix.Close(namespace)
	var stat unix.Stat_t
	if err := unix.Fstat(namespace, &stat); err != nil {
		return entry, badRequest("look at the network namespace of its socket: %w", err)
	}
	if err := p.prepare(); err != nil {
		return entry, err
	}
	where := site{uint64(stat.Dev), stat.Ino, e.ifindex}
	err = within(namespace, func() error {
		ifi, err := net.InterfaceByIndex(e.ifindex)
		if err != nil {
			return badRequest("interface %d: %w", e.ifindex, err)
		}
		if err := owns(ifi, at.Addr()); err != nil {
			return err
		}
		if p.lanes[where] == nil {
			s, err := p.executor.NewSwitch(ifi.Name)
			if err != nil {
				return err
			}
			own, err := unix.FcntlInt(uintptr(namespace), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				return errors.Join(badRequest("keep its network namespace: %w", err), s.Close())
			}
			p.lanes[where] = &lane{Switch: s, site: where, namespace: own}
		}
		return nil
	})
	if err != nil {
		return entry, err
	}
	e.enters.lane = p.lanes[where]
	e.enters.lane.guests++
	return loader.Entry{Switch: e.enters.lane.Switch, Address: at.Addr(), Port: at.Port(), Socket: e.socket, Slots: e.slots}, nil
}

// prepare loads the executor: at tc where the kernel has tcx, and else by XDP in generic mode.
func (p *porter) prepare() error {
	if p.executor != nil {
		return nil
	}
	var errs []error
	for _, mode := range []loader.Mode{loader.TCX, loader.Generic} {
		e, err := loader.NewExecutor(mode, 0)
		if err == nil {
			if p.executor = e; len(errs) > 0 {
				p.log.Info("ranks share generic XDP", "reason", errs[0])
			}
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// leave takes the switch from an interface that has no rank any more.
func (p *porter) leave(l *lane) {
	if l.guests--; l.guests > 0 {
		return
	}
	delete(p.lanes, l.site)
	if err := l.close(); err != nil {
		p.log.Warn("a switch stays on its interface", "interface", l.site.index, "error", err)
	}
}

func (l *lane) close() error { return errors.Join(l.Close(), unix.Close(l.namespace)) }

// look puts switches back that somebody has taken away. Meanwhile frames come to the ranks' sockets.
func (p *porter) look() {
	for _, l := range p.lanes {
		if l.IsAttached() {
			continue
		}
		if !l.away {
			l.away = true
			p.log.Warn("the switch of ranks that share an interface was taken from it, and their frames come through the kernel meanwhile, which is slower",
				"interface", l.site.index, "mode", p.executor.Mode())
		}
		if err := within(l.namespace, l.AttachAgain); err == nil {
			l.away = false
			p.log.Warn("the switch is on its interface again", "interface", l.site.index, "mode", p.executor.Mode())
		}
	}
}

func (p *porter) close() error {
	var errs []error
	for _, l := range p.lanes {
		errs = append(errs, l.close())
	}
	if p.executor != nil {
		errs = append(errs, p.executor.Close())
	}
	return errors.Join(errs...)
}

// nameOf returns the address and port of a UDP socket, which are its own until it is closed: they do not go to others
// when it is disconnected, and it does not share them. Nor is it one of another interface than that of an index, where
// somebody else may have them.
func nameOf(fd, ifindex int) (at netip.AddrPort, err error) {
	for _, want := range []struct{ option, value int }{
		{unix.SO_TYPE, unix.SOCK_DGRAM}, {unix.SO_PROTOCOL, unix.IPPROTO_UDP}, {unix.SO_REUSEADDR, 0}, {unix.SO_REUSEPORT, 0},
	} {
		got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, want.option)
		if err != nil {
			return at, err
		}
		if got != want.value {
			return at, fmt.Errorf("option %d of its level SOL_SOCKET is %d, and not %d: make a UDP socket that shares its port with no other", want.option, got, want.value)
		}
	}
	if own, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX); err != nil || own != 0 && own != ifindex {
		return at, fmt.Errorf("it is bound to interface %d, and not to %d or none (%v)", own, ifindex, err)
	}
	if err := disconnect(fd); err != nil {
		return at, fmt.Errorf("disconnect it: %w", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return at, err
	}
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		at = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		at = netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	if ip := at.Addr(); at.Port() == 0 || !ip.IsValid() || ip.IsUnspecified() || ip.IsMulticast() || ip.Is4In6() || ip.IsLoopback() {
		return at, fmt.Errorf("it is at %v: bind it to an address of a network interface, and a port by its number", at)
	}
	return at, nil
}

// owns returns an error unless an interface has an address.
func owns(ifi *net.Interface, ip netip.Addr) error {
	addrs, err := ifi.Addrs()
	if err != nil {
		return badRequest("the addresses of interface %s: %w", ifi.Name, err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if own, ok := netip.AddrFromSlice(n.IP); ok && own.Unmap() == ip {
				return nil
			}
		}
	}
	return badRequest("interface %s does not have the address %v", ifi.Name, ip)
}

// within runs f in a network namespace, on a thread that ends with it.
func within(namespace int, f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Setns(namespace, unix.CLONE_NEWNET)
		if err == nil {
			err = f()
		} else {
			err = mpierr.New("enter", mpierr.Unsupported, mpierr.NoRank, "enter the rank's network namespace: %w", os.NewSyscallError("setns", err))
		}
		result <- err
	}()
	return <-result
}
