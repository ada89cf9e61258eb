package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/mpierr"
)

// porter lets ranks in and out. One goroutine uses it. It has the executors, and a switch on each interface for as long as
// a rank there is served.
type porter struct {
	log       *slog.Logger
	config    Config
	accounts  *accounts
	executors map[loader.Mode]*loader.Executor
	lanes     map[site]*lane
	noTCX     error // why switches that are not in a driver are not at tc
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
	name      string // of the interface
	executor  *loader.Executor
	namespace int    // a descriptor of it
	user      uint32 // who entered first
	guests    int
	stays     bool // without guests, too
	away      bool // somebody has taken the switch away
}

// errand is what the porter has to do for a rank.
type errand struct {
	enters, leaves *guest
	asks           *guest // whether it may enter
	socket         int    // of who enters
	slots          int
	from           origin
	maps           []*ebpf.Map  // of who returns; carry closes them if the rank may not enter
	entry          loader.Entry // once it is admitted

	mode loader.Mode // the porter's answer
	err  error
	done chan struct{}
}

// carry carries out errands.
func (p *porter) carry(list []*errand) {
	leaving := map[*loader.Executor][]*loader.Member{}
	for _, e := range list {
		if g := e.leaves; g != nil {
			leaving[g.lane.executor] = append(leaving[g.lane.executor], g.place)
		}
	}
	for executor, members := range leaving {
		if err := executor.Leave(members); err != nil {
			p.log.Warn("the places of ranks that have left cannot be given to others", "ranks", len(members), "error", err)
		}
	}
	for _, e := range list {
		if e.leaves != nil {
			p.leave(e.leaves)
		}
	}
	entering := map[*loader.Executor][]*errand{}
	for _, e := range list {
		if e.asks != nil {
			e.mode, e.err = p.probe(e)
		}
		if e.enters == nil {
			continue
		}
		if e.err = p.admit(e); e.err == nil {
			executor := e.enters.lane.executor
			entering[executor] = append(entering[executor], e)
		}
	}
	for executor, errands := range entering {
		entries := make([]loader.Entry, len(errands))
		for i, e := range errands {
			entries[i] = e.entry
		}
		places, errs := executor.Enter(entries)
		for i, e := range errands {
			p.settle(e, places[i], errs[i])
		}
	}
}

// settle notes whether a rank has entered that was admitted.
func (p *porter) settle(e *errand, place *loader.Member, err error) {
	g := e.enters
	p.accounts.release(g.owner, g.lane.executor.Memory(e.slots))
	if e.err = err; err != nil {
		p.leave(g)
		return
	}
	g.place, e.mode = place, g.lane.executor.Mode()
	for _, m := range place.Maps() {
		p.accounts.made(g.owner, m)
	}
}

// admit looks whether a rank may enter, and sees to the switch of its interface. Then settle has to follow.
func (p *porter) admit(e *errand) (err error) {
	defer func() {
		if err != nil {
			closeMaps(e.maps)
		}
	}()
	g, from := e.enters, e.from
	g.at, g.owner.dev, g.owner.inode = from.at, from.dev, from.inode
	if err := p.accounts.enter(g.owner); err != nil {
		return err
	}
	if g.lane, err = p.laneFor(from, g.owner.user); err != nil {
		p.accounts.leave(g.owner)
		return err
	}
	g.lane.guests++
	if err := p.accounts.reserve(g.owner, g.lane.executor.Memory(e.slots)); err != nil {
		p.leave(g)
		return err
	}
	e.entry = loader.Entry{Switch: g.lane.Switch, Address: from.at.Addr(), Port: from.at.Port(), Socket: e.socket, Slots: e.slots, Maps: e.maps}
	return nil
}

// probe returns where the switch would be that serves a rank, if the rank may enter.
func (p *porter) probe(e *errand) (mode loader.Mode, err error) {
	o := owner{e.asks.owner.user, e.from.dev, e.from.inode}
	if err := p.accounts.enter(o); err != nil {
		return 0, err
	}
	p.accounts.leave(o)
	if l := p.lanes[e.from.site]; l != nil {
		return l.executor.Mode(), nil
	}
	if err := p.mayBring(o.user); err != nil {
		return 0, err
	}
	executor, err := p.executorOf(loader.TCX)
	if err != nil {
		return 0, err
	}
	return executor.Mode(), nil
}

// origin is where a rank's socket is.
type origin struct {
	site
	at        netip.AddrPort
	name      string // of the interface
	namespace int    // a descriptor, to be closed
}

// locate finds out where the socket of a rank is, and whether the rank may have it. The time that this takes is up to
// who has the network namespace: the porter must not wait for it.
func (c *Config) locate(socket, ifindex int) (from origin, err error) {
	if from.at, err = nameOf(socket, ifindex); err != nil {
		return from, badRequest("its socket: %w", err)
	}
	if first, last, port := c.Ports[0], c.Ports[1], from.at.Port(); last != 0 && (port < first || port > last) {
		return from, badRequest("its port %d is not within %d and %d, which the agent allows", port, first, last)
	}
	if from.namespace, err = unix.IoctlRetInt(socket, unix.SIOCGSKNS); err != nil {
		return from, badRequest("find the network namespace of its socket: %w", err)
	}
	if from.site, err = siteOf(from.namespace, ifindex); err == nil {
		err = within(from.namespace, func() (err error) {
			from.name, err = c.allows(from)
			return err
		})
	}
	if err != nil {
		_ = unix.Close(from.namespace)
	}
	return from, err
}

// allows returns the name of the interface at which a rank is, if ranks may be there. The thread is in its namespace.
func (c *Config) allows(from origin) (name string, err error) {
	ifi, err := net.InterfaceByIndex(from.index)
	if err != nil {
		return "", badRequest("interface %d: %w", from.index, err)
	}
	if err := owns(ifi, from.at.Addr()); err != nil {
		return "", err
	}
	if may := c.Interfaces; len(may) > 0 && !slices.Contains(may, ifi.Name) {
		return "", badRequest("interface %s is none of those that the agent allows: %s", ifi.Name, strings.Join(may, ", "))
	}
	return ifi.Name, nil
}

// mapsOf returns the maps of descriptors, which stay the caller's. It returns nil for none.
func mapsOf(files []int) (maps []*ebpf.Map, err error) {
	for _, file := range files {
		m, err := mapOf(file)
		if err != nil {
			closeMaps(maps)
			return nil, badRequest("the maps of a rank that returns: %w", err)
		}
		maps = append(maps, m)
	}
	return maps, nil
}

func closeMaps(maps []*ebpf.Map) {
	for _, m := range maps {
		_ = m.Close()
	}
}

// siteOf returns an interface of a namespace.
func siteOf(namespace, index int) (site, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(namespace, &stat); err != nil {
		return site{}, badRequest("look at the network namespace of its socket: %w", err)
	}
	return site{uint64(stat.Dev), stat.Ino, index}, nil
}

// laneFor returns the switch of the interface at which a rank is.
func (p *porter) laneFor(from origin, user uint32) (l *lane, err error) {
	if l := p.lanes[from.site]; l != nil {
		return l, nil
	}
	if err := p.mayBring(user); err != nil {
		return nil, err
	}
	executor, err := p.executorOf(loader.TCX)
	if err != nil {
		return nil, err
	}
	err = within(from.namespace, func() (err error) {
		l, err = p.open(from.site, from.namespace, from.name, executor, user)
		return err
	})
	return l, err
}

// mayBring returns an error if a user has brought switches to as many interfaces as it may.
func (p *porter) mayBring(user uint32) error {
	has := 0
	for _, l := range p.lanes {
		if l.user == user && !l.stays {
			has++
		}
	}
	if most := p.config.Limits.Switches; most > 0 && has >= most {
		return refuse("user %d has brought the agent to %d interfaces, as many as it allows", user, has)
	}
	return nil
}

// open puts a switch on an interface. The thread is in its namespace.
func (p *porter) open(at site, namespace int, ifname string, executor *loader.Executor, user uint32) (*lane, error) {
	s, err := executor.NewSwitch(ifname)
	if err != nil {
		return nil, err
	}
	own, err := unix.FcntlInt(uintptr(namespace), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(badRequest("keep its network namespace: %w", err), s.Close())
	}
	l := &lane{Switch: s, site: at, name: ifname, executor: executor, namespace: own, user: user}
	p.lanes[at] = l
	return l, nil
}

// stay puts switches into the drivers of the interfaces that are to have them there.
func (p *porter) stay() error {
	if len(p.config.Native) == 0 {
		return nil
	}
	executor, err := p.executorOf(loader.Native)
	if err != nil {
		return err
	}
	namespace, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the network namespace: %w", err)
	}
	defer unix.Close(namespace)
	for _, name := range p.config.Native {
		ifi, err := net.InterfaceByName(name)
		if err != nil {
			return fmt.Errorf("interface %s: %w", name, err)
		}
		at, err := siteOf(namespace, ifi.Index)
		if err != nil {
			return err
		}
		if p.lanes[at] != nil {
			continue
		}
		l, err := p.open(at, namespace, name, executor, 0)
		if err != nil {
			return err
		}
		l.stays = true
	}
	return nil
}

// executorOf returns the executor of a mode. Where the kernel has no tcx, that is generic XDP.
func (p *porter) executorOf(mode loader.Mode) (*loader.Executor, error) {
	if mode == loader.TCX && p.noTCX != nil {
		mode = loader.Generic
	}
	if e := p.executors[mode]; e != nil {
		return e, nil
	}
	e, err := loader.NewExecutor(mode, maxRanks)
	if err == nil {
		p.executors[mode] = e
		return e, nil
	}
	if mode != loader.TCX {
		return nil, err
	}
	e, second := p.executorOf(loader.Generic)
	if second != nil {
		return nil, errors.Join(err, second)
	}
	p.noTCX = err
	p.log.Info("ranks share generic XDP", "reason", err)
	return e, nil
}

// leave ends what admit began. The last rank takes the switch from its interface.
func (p *porter) leave(g *guest) {
	p.accounts.leave(g.owner)
	l := g.lane
	if l.guests--; l.guests > 0 || l.stays {
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
				"interface", l.site.index, "mode", l.executor.Mode())
		}
		if err := within(l.namespace, l.AttachAgain); err == nil {
			l.away = false
			p.log.Warn("the switch is on its interface again", "interface", l.site.index, "mode", l.executor.Mode())
		}
	}
}

func (p *porter) close() error {
	var errs []error
	for _, l := range p.lanes {
		errs = append(errs, l.close())
	}
	for _, e := range p.executors {
		errs = append(errs, e.Close())
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
