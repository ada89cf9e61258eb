package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/afxdp"
	"github.com/xdprma/xdprma/internal/device/tier"
	"github.com/xdprma/xdprma/loader"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/userspace"
)

const (
	maxQueues       = userspace.MaxQueues // with a socket; what comes by others goes through the kernel
	fullQueues      = 4                   // queues up to which each has room for RxFrames
	defaultRxFrames = 1024
	maxRxFrames     = userspace.MaxFrames
	minRxFrames     = userspace.MinRxFrames
	// headroom of a slot: the headers of IPv6 end there, and of IPv4, so that the
	// payload is aligned to 8 bytes.
	headroom = 64
	// smallChunk and largeChunk are the sizes of the UMEM's chunks: the small ones where a frame
	// has room in one.
	smallChunk, largeChunk = 2048, 4096
	// linkLen is what a frame has on top of its IP packet, with two VLAN tags.
	linkLen = ethernetLen + 2*vlanLen
)

// OpenXDP opens an XDP device: it reserves the UDP port, attaches the
// classifier and binds a socket to each queue. It needs CAP_NET_RAW, CAP_BPF and
// CAP_NET_ADMIN, or a Program and SocketFDs. The goroutine must run in the
// network namespace of the interface. While other AF_XDP sockets have the queues, as those
// of a process that ended an instant ago still do, it waits for them: up to ten seconds,
// with a warning after one, or until ctx ends. It waits up to five seconds for an address
// that is tentative. Errors say what to do.
func OpenXDP(ctx context.Context, config Config) (*XDP, error) {
	x := &XDP{base: base{job: config.Job, keyed: config.HelloKey != nil}, stack: stack{socket: socket{fd: -1}}}
	adopted, err := x.open(ctx, config)
	if err != nil {
		if config.Program != nil {
			x.program = nil // it stays the caller's
		}
		_ = x.Close() // the first error is the one to tell
		_ = closeAll(config.SocketFDs[min(adopted, len(config.SocketFDs)):])
		return nil, err
	}
	return x, nil
}

// open returns how many of the SocketFDs it took over.
func (x *XDP) open(ctx context.Context, c Config) (adopted int, err error) {
	if err := x.normalize(ctx, &c); err != nil {
		return 0, err
	}
	if err := x.link.open(x.ifi, c.Address, c.Logger); err != nil {
		return 0, openError(mpierr.Unsupported, err)
	}
	if err := x.reservePort(); err != nil {
		return 0, openError(mpierr.Unsupported, err)
	}
	if x.routes, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return 0, openError(mpierr.Unsupported, fmt.Errorf("open a route netlink socket: %w", err))
	}
	if err = x.openNeighbours(); err != nil {
		return 0, openError(mpierr.Unsupported, fmt.Errorf("open a route netlink socket: %w", err))
	}
	mode := loader.Native
	if c.Transport == userspace.XDPGeneric {
		mode = loader.Generic
	}
	if x.program = c.Program; x.program == nil {
		x.program, err = loader.Attach(loader.Options{Interface: c.Interface, Address: c.Address, Port: x.local.addr.Port(),
			Queues: c.Queues, Mode: mode, Job: c.Job, HelloKey: (*[16]byte)(c.HelloKey), Longest: LongestPayload(c.MTU, c.Address), Slots: c.Sessions, Logger: c.Logger})
		if err != nil {
			return 0, err
		}
	} else if to := x.program.LocalAddr(); to != x.local.addr {
		return 0, openError(mpierr.Arg, fmt.Errorf("the program from outside takes frames to %v, and this device is at %v: give both the same address and port", to, x.local.addr))
	} else if err := x.program.SetJob(c.Job, (*[16]byte)(c.HelloKey)); err != nil {
		return 0, openError(mpierr.Unsupported, err)
	}
	if err := x.presence.open(x); err != nil {
		return 0, openError(mpierr.Unsupported, err)
	}
	x.stack.joins, x.stack.doorbell = x.program.Mode() == loader.Generic, x.program.Doorbell()
	if kernel, err := x.program.Tier(); err == nil {
		x.facts.Tier = tier.New(kernel, c.Logger)
		x.answers.ring = x.facts.Tier.Answers()
	}
	if adopted, err = x.openSockets(ctx, &c); err != nil {
		return adopted, err
	}
	x.facts.Local, x.facts.Interface, x.facts.Queues, x.facts.Alive = x.local.addr, x.ifi.Name, len(x.sockets), x.link.alive
	x.facts.Mode, x.facts.Filter = NewMode(x.mode()), x.program
	x.facts.Joins, x.facts.Room = x.stack.joined()
	x.watch.start(x)
	return adopted, nil
}

// normalize fills the defaults in, reports what is wrong, and notes the local
// end of all paths.
func (x *XDP) normalize(ctx context.Context, c *Config) error {
	if x.patience = c.Patience; x.patience == 0 {
		x.patience = defaultPatience
	}
	features, err := loader.Probe(c.Interface)
	if err != nil {
		return err
	}
	if x.ifi, err = net.InterfaceByName(c.Interface); err != nil {
		return openError(mpierr.Arg, err)
	}
	if c.Program == nil { // another rank of the interface is likely to have the port, too, which is the lesser news
		if err := features.Free(); err != nil {
			return err
		}
	}
	if len(x.ifi.HardwareAddr) != 6 || x.ifi.Flags&net.FlagLoopback != 0 {
		return openError(mpierr.Unsupported, fmt.Errorf("interface %s is not an Ethernet interface: use the UDP transport", c.Interface))
	}
	if x.ifi.Flags&net.FlagUp == 0 {
		return openError(mpierr.Unsupported, fmt.Errorf("interface %s is down: set it up (ip link set %s up)", c.Interface, c.Interface))
	}
	if c.Address, err = addressOf(ctx, x.ifi, c.Address, netip.Addr{}); err != nil {
		return openError(mpierr.Arg, err)
	}
	if err := c.normalize(x.ifi); err != nil {
		return err
	}
	x.log = c.Logger
	orDefault(&c.Queues, max(1, min(features.RxQueues, maxQueues)))
	orDefault(&c.RxFrames, defaultRxFrames)
	if err := c.check(); err != nil {
		return openError(mpierr.Arg, err)
	}
	c.Queues = min(c.Queues, max(1, features.RxQueues))
	x.senders = max(1, features.TxQueues)
	x.copyFirst, x.chunk = features.CopyFirst() != "", chunkSize(c.MTU, features)
	x.stack.cuts = features.Offloads.Known && !features.Offloads.Has("tx-udp-segmentation")
	if c.Queues < features.RxQueues {
		c.Logger.Warn("some queues have no AF_XDP socket, what arrives there takes the slower way through the kernel: use all queues",
			"interface", c.Interface, "queues", features.RxQueues, "used", c.Queues)
	}
	x.local = endpoint{mac: [6]byte(x.ifi.HardwareAddr), addr: netip.AddrPortFrom(c.Address, c.Port)}
	return nil
}

// check reports what is wrong with that which concerns XDP alone.
func (c *Config) check() error {
	switch {
	case c.Queues < 1 || c.Queues > maxQueues:
		return fmt.Errorf("%d queues are not within 1 and %d", c.Queues, maxQueues)
	case c.RxFrames < minRxFrames || c.RxFrames > maxRxFrames:
		return fmt.Errorf("%d receive frames are not within %d and %d", c.RxFrames, minRxFrames, maxRxFrames)
	case c.Program != nil && c.Port == 0:
		return errors.New("with a program from outside the port must be stated")
	case c.SocketFDs != nil && len(c.SocketFDs) != c.Queues:
		return fmt.Errorf("%d sockets from outside for %d queues", len(c.SocketFDs), c.Queues)
	}
	return nil
}

// openSockets opens a socket for each queue and directs its frames to it. It
// returns how many of the SocketFDs it took over. Where a queue after the first has
// none to give, because another program has it or because it is not in use, the
// frames of that queue and of those after it go through the kernel.
func (x *XDP) openSockets(ctx context.Context, c *Config) (adopted int, err error) {
	slab, adopted, err := x.openFirst(ctx, c)
	if err != nil {
		return adopted, err
	}
	for q := 1; q < c.Queues; q++ {
		if adopted, err = x.openSocket(ctx, c, afxdp.Config{Share: x.sockets[0]}, q); err == nil {
			continue
		}
		if c.SocketFDs != nil || ctx.Err() != nil {
			return adopted, err
		}
		x.log.Warn("a queue has no AF_XDP socket, what arrives there and at later ones takes the slower way through the kernel",
			"interface", x.ifi.Name, "queue", q, "of", c.Queues, "reason", err)
		break
	}
	x.senders = min(x.senders, len(x.sockets))
	slab.Mem = x.sockets[0].TxArea()
	x.facts.Slab = slab
	if err := x.stack.open(slab, x.log); err != nil {
		return adopted, openError(mpierr.Unsupported, err)
	}
	var fds []int
	for _, s := range x.sockets {
		fds = append(fds, s.FD())
	}
	if x.answers.ring != nil {
		fds = append(fds, x.answers.ring.FD())
	}
	if err := x.sleeper.open(append(fds, x.stack.fd)...); err != nil {
		return adopted, openError(mpierr.Unsupported, err)
	}
	return adopted, nil
}

// openFirst opens the socket of the first queue, with the memory of all. Where so much
// may not be locked, fewer queues have to do.
func (x *XDP) openFirst(ctx context.Context, c *Config) (slab *Slab, adopted int, err error) {
	for {
		slab, memory := layout(c, x.chunk)
		memory.IfIndex, memory.Interface = x.ifi.Index, x.ifi.Name
		memory.Sharers = c.Queues - 1
		memory.Logger = x.log
		if c.tryOnce {
			memory.Patience = 1
		}
		if x.program.Mode() != loader.Native || x.facts.Tier != nil && x.copyFirst {
			memory.ZeroCopy = afxdp.Copy // the driver does not know of generic programs, or hinders ours
		}
		adopted, err := x.openSocket(ctx, c, memory, 0)
		short := errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM)
		if !short || c.Queues == 1 || c.SocketFDs != nil {
			return slab, adopted, err
		}
		half := c.Queues / 2
		x.log.Warn("the memory for all queues cannot be had, what arrives at some takes the slower way through the kernel",
			"interface", x.ifi.Name, "queues", c.Queues, "used", half, "reason", err)
		c.Queues = half
	}
}

// openSocket opens the socket of one queue, and returns how many of the SocketFDs
// were taken over by then.
func (x *XDP) openSocket(ctx context.Context, c *Config, config afxdp.Config, queue int) (adopted int, err error) {
	config.Queue = queue
	if c.SocketFDs != nil {
		config.FD = c.SocketFDs[queue]
	}
	s, err := afxdp.Open(ctx, config)
	if err != nil {
		return queue, openError(mpierr.Unsupported, err)
	}
	x.sockets = append(x.sockets, s)
	return queue + 1, x.program.SetSocket(queue, s.FD())
}

// framesPerQueue returns how many frames a queue can hold. Up to four queues hold
// all of rxFrames each, since the frames of all peers may arrive at one. More share
// the memory of four, down to a half of rxFrames each, which is what the engine lets
// all peers together have on their way.
func framesPerQueue(rxFrames, queues int) int {
	return max(min(rxFrames, fullQueues*rxFrames/queues), rxFrames/2, minRxFrames)
}

// LongestPayload returns how many bytes of UDP payload a frame between addresses like ip has at
// most, where IP packets have up to mtu.
func LongestPayload(mtu int, ip netip.Addr) int { return mtu - udpLen - ipLen(ip) }

// PacketMemory returns how many bytes of memory an XDP device with the defaults locks
// for its frames, on such an interface with so many queues.
func PacketMemory(on loader.Features, queues int) int {
	c := Config{Config: userspace.Config{Queues: queues}, MTU: on.MTU, Slots: defaultSlots, RxFrames: defaultRxFrames}
	_, m := layout(&c, chunkSize(on.MTU, on))
	return (m.TxChunks + queues*m.RxChunks) * m.ChunkSize
}

// chunkSize returns the size of chunks for frames of an MTU.
func chunkSize(mtu int, on loader.Features) int {
	if linkLen+mtu <= on.ZeroCopyRoom(smallChunk-unix.XDP_PACKET_HEADROOM) {
		return smallChunk
	}
	return largeChunk
}

// layout decides how slots and received frames lie in the UMEM's chunks.
func layout(c *Config, chunk int) (*Slab, afxdp.Config) {
	payload := c.MTU - udpLen - ipLen(c.Address)
	perSlot := (headroom + payload + chunk - 1) / chunk
	room := chunk - unix.XDP_PACKET_HEADROOM
	perFrame := (linkLen + c.MTU + room - 1) / room
	slab := &Slab{Slots: c.Slots, Stride: perSlot * chunk, Headroom: headroom, MaxPayload: payload}
	return slab, afxdp.Config{
		ChunkSize:   chunk,
		TxChunks:    c.Slots * perSlot,
		RxChunks:    framesPerQueue(c.RxFrames, c.Queues) * perFrame,
		MultiBuffer: perSlot > 1 || perFrame > 1,
		MaxFrame:    min(max(chunk, linkLen+c.MTU), 1<<16),
	}
}

// closeAll closes file descriptors.
func closeAll(fds []int) error {
	var errs []error
	for _, fd := range fds {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}
