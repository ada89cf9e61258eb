package device

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/stats"
)

const (
	defaultSlots = 1024
	maxSlots     = 1 << 16
	// maxUDPPayload is what a UDP device sends at most, unless told otherwise:
	// the payload of a jumbo frame of 9000 bytes.
	maxUDPPayload = 9000 - ipv6Len - udpLen
	socketBuffer  = 8 << 20 // bytes of SO_RCVBUF and SO_SNDBUF that a UDP device asks for
)

// UDP is a Device over one UDP socket. It needs no privilege. Each batch costs
// one system call, and every datagram passes the kernel's stack.
type UDP struct {
	base
	fd    int
	local netip.AddrPort // without a zone, which means nothing to peers
	zone  int            // the interface on which link-local addresses are looked for

	segments int // datagrams that the kernel cuts a message into; 0: it does not
	room     int // bytes of joined frames that the socket holds

	paths pathTable[sockaddr]
	tx    udpSender
	rx    udpReceiver
}

var _ Device = (*UDP)(nil)

// OpenUDP opens a UDP device at config's address, which is required and decides on the
// interface. It does not block. The goroutine must run in the network namespace that the
// device is to use.
func OpenUDP(config Config) (*UDP, error) {
	u := &UDP{base: base{job: config.Job, keyed: config.HelloKey != nil}, fd: -1}
	if err := u.open(config); err != nil {
		_ = u.Close() // the first error is the one to tell
		return nil, err
	}
	return u, nil
}

func (u *UDP) open(c Config) (err error) {
	ip := c.Address.WithZone("")
	if !ip.IsValid() || ip.IsUnspecified() || ip.IsMulticast() || ip.Is4In6() {
		return openError(mpierr.Arg, fmt.Errorf("%v is not an address that peers can reach: name one of this machine's", c.Address))
	}
	ifi, err := interfaceOf(c.Address)
	if err != nil {
		return openError(mpierr.Arg, err)
	}
	if err := c.normalize(ifi); err != nil {
		return err
	}
	if err := u.link.open(ifi, ip, c.Logger); err != nil {
		return openError(mpierr.Unsupported, err)
	}
	fd, port, err := udpSocket(netip.AddrPortFrom(zoned(ip, ifi.Index), c.Port))
	if err != nil {
		return openError(mpierr.Unsupported, err)
	}
	u.fd, u.local, u.zone = fd, netip.AddrPortFrom(ip, port), ifi.Index
	if err := u.setOptions(); err != nil {
		return openError(mpierr.Unsupported, err)
	}
	if err := u.sleeper.open(fd); err != nil {
		return openError(mpierr.Unsupported, err)
	}
	u.facts.Slab = engine.HeapSlab(c.Slots, 0, min(c.MTU-udpLen-ipLen(ip), maxUDPPayload))
	u.initialize(c.Logger)
	u.facts.Local, u.facts.Interface, u.facts.Alive = u.local, ifi.Name, u.link.alive
	u.facts.Mode, u.facts.Joins, u.facts.Room = NewMode("udp"), u.segments, u.room
	if got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err == nil && got < socketBuffer {
		c.Logger.Info("the UDP receive buffer is smaller than wished, bursts may be lost: raise net.core.rmem_max",
			"bytes", got, "wished", 2*socketBuffer)
	}
	return nil
}

func openError(class mpierr.Class, err error) error {
	return mpierr.New("open device", class, mpierr.NoRank, "%w", err)
}

// setOptions prepares the socket: large buffers, and never a fragment. The interface's
// MTU bounds frames, and not the path's: anybody could forge the ICMP messages that
// lower that.
func (u *UDP) setOptions() error {
	raise(u.fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF)
	raise(u.fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF)
	level, option, value := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE
	if u.local.Addr().Is6() {
		level, option, value = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE
	}
	if err := unix.SetsockoptInt(u.fd, level, option, value); err != nil {
		return fmt.Errorf("forbid fragments: %w", err)
	}
	return nil
}

// initialize prepares both directions, over the slab. Where the kernel can, several
// frames are sent and received as one message, which it cuts and joins.
func (u *UDP) initialize(log *slog.Logger) {
	if _, err := unix.GetsockoptInt(u.fd, unix.SOL_UDP, unix.UDP_SEGMENT); err == nil { // Linux 4.18
		u.segments = maxSegments
	}
	u.tx.init(u.facts.Slab, log)
	coalesces := unix.SetsockoptInt(u.fd, unix.SOL_UDP, unix.UDP_GRO, 1) == nil // Linux 5.0
	u.rx.init(u.facts.Slab.MaxPayload, coalesces)
	if got, err := unix.GetsockoptInt(u.fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err == nil && coalesces {
		u.room = got / 2 // the kernel counts the memory of a packet, up to twice its bytes
	}
}

// maxSegments is how many datagrams the kernel cuts a message into on all releases that do.
const maxSegments = 64

// raise asks for a large buffer; without privilege the system's limit holds.
func raise(fd, force, polite int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, socketBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, polite, socketBuffer) // caps silently
	}
}

// Receive implements Device. It returns at most 64 messages between two calls of
// Release.
func (u *UDP) Receive(frames []Frame) int {
	n := u.rx.receive(u.fd, frames)
	u.learn(frames[:n])
	if u.rx.pending() {
		u.sleeper.wake() // the socket does not wake whoever sleeps on it
	}
	return n
}

// learn gives the frames that the receiver has just delivered the paths back to their
// senders.
func (u *UDP) learn(frames []Frame) {
	for i := range frames {
		frames[i].Path = NoPath
		if !u.teaches(frames[i].Payload) {
			continue
		}
		from := &u.rx.names[u.rx.delivered[i]]
		from.clean()
		if frames[i].Path = u.paths.intern(from, maxLearned); frames[i].Path == NoPath {
			u.unknownPaths.Add(1)
		}
	}
}

// Release implements Device.
func (u *UDP) Release() { u.rx.release() }

// Enqueue implements Device.
func (u *UDP) Enqueue(outs []Out) int { return u.tx.enqueue(outs) }

// Reap implements Device.
func (u *UDP) Reap(slots []int32) int { return u.tx.reap(slots) }

// Transmit implements Device. A caller that finds another one at it leaves the
// frames to that one.
func (u *UDP) Transmit() {
	if u.tx.transmit(u.fd, &u.paths) {
		u.sleeper.wake()
	}
}

// Sleep implements Device. It also ends when frames that found the socket's
// buffer full can be sent. Frames that somebody is about to send do not end it.
func (u *UDP) Sleep(d time.Duration) {
	events := int16(unix.POLLIN)
	if u.tx.full.Load() {
		events |= unix.POLLOUT
	}
	if u.sleeper.sleep(d, events) > 0 && u.sleeper.polls[1].Revents&unix.POLLERR != 0 {
		u.clearError()
	}
}

// clearError forgets the error of an earlier send, which poll would report forever.
func (u *UDP) clearError() { _, _ = unix.GetsockoptInt(u.fd, unix.SOL_SOCKET, unix.SO_ERROR) }

// Path implements Device; it does not block.
func (u *UDP) Path(_ context.Context, addr netip.AddrPort) (PathID, error) {
	if addr.Addr().Is4() != u.local.Addr().Is4() || addr.Port() == 0 || addr.Addr().IsUnspecified() {
		return NoPath, pathError(addr, mpierr.Arg, notOfRank(addr, u.local))
	}
	sa, err := encode(netip.AddrPortFrom(zoned(addr.Addr(), u.zone), addr.Port()))
	if err != nil {
		return NoPath, pathError(addr, mpierr.Arg, err)
	}
	id := u.paths.intern(&sa, maxPaths)
	if id == NoPath {
		return NoPath, pathError(addr, mpierr.NoMem, errTooManyPaths)
	}
	return id, nil
}

// Peer implements Device.
func (u *UDP) Peer(id PathID) netip.AddrPort {
	addr := u.paths.get(id).addr()
	return netip.AddrPortFrom(addr.Addr().WithZone(""), addr.Port())
}

var errTooManyPaths = fmt.Errorf("the device knows %d paths already", maxPaths)

func pathError(addr netip.AddrPort, class mpierr.Class, err error) error {
	return mpierr.New("resolve "+addr.String(), class, mpierr.NoRank, "%w", err)
}

// Stats implements Device. RxBytes and TxBytes count UDP payload. RxDropped
// includes handshakes that cannot be answered because the senders of 65536
// others are remembered.
func (u *UDP) Stats(s *stats.Device) {
	u.tx.addStats(s)
	u.rx.addStats(s)
	u.sleeper.addStats(s)
	s.RxDropped += u.unknownPaths.Load() + socketDrops(u.fd)
}

// Close implements Device.
func (u *UDP) Close() error {
	u.close.Do(func() {
		u.err = errors.Join(u.link.close(), u.sleeper.close())
		if u.fd >= 0 {
			u.err = errors.Join(u.err, unix.Close(u.fd))
		}
	})
	return u.err
}
