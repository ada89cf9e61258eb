package device

import (
	"fmt"
	"log/slog"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/stats"
)

// socket is a UDP socket, both directions over it, and the paths to peers. A UDP device consists of
// it, and an XDP device has one for what goes through the kernel's stack.
type socket struct {
	fd    int            // -1: there is none
	local netip.AddrPort // without a zone, which means nothing to peers
	zone  int            // the interface on which link-local addresses are looked for

	segments int // datagrams that the kernel cuts a message into; 0: it does not
	room     int // bytes of joined frames that the socket holds

	paths pathTable[sockaddr]
	tx    udpSender
	rx    udpReceiver
}

// bind makes the socket at an address without a zone on an interface. The system chooses the port if
// that is 0.
func (s *socket) bind(at netip.AddrPort, zone int) error {
	fd, port, err := udpSocket(netip.AddrPortFrom(zoned(at.Addr(), zone), at.Port()))
	if err != nil {
		return err
	}
	s.fd, s.local, s.zone = fd, netip.AddrPortFrom(at.Addr(), port), zone
	return nil
}

// setOptions prepares the socket: large buffers, and never a fragment. The interface's
// MTU bounds frames, and not the path's: anybody could forge the ICMP messages that
// lower that.
func (s *socket) setOptions() error {
	raise(s.fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF)
	raise(s.fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF)
	level, option, value := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE
	if s.local.Addr().Is6() {
		level, option, value = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE
	}
	if err := unix.SetsockoptInt(s.fd, level, option, value); err != nil {
		return fmt.Errorf("forbid fragments: %w", err)
	}
	return nil
}

// prepare prepares both directions, over a slab. Where the kernel can, several frames are sent and
// received as one message, which it cuts and joins.
func (s *socket) prepare(slab *Slab, log *slog.Logger) {
	if _, err := unix.GetsockoptInt(s.fd, unix.SOL_UDP, unix.UDP_SEGMENT); err == nil { // Linux 4.18
		s.segments = maxSegments
	}
	s.tx.init(slab, log)
	coalesces := unix.SetsockoptInt(s.fd, unix.SOL_UDP, unix.UDP_GRO, 1) == nil // Linux 5.0
	s.rx.init(slab.MaxPayload, coalesces)
	if got, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err == nil && coalesces {
		s.room = got / 2 // the kernel counts the memory of a packet, up to twice its bytes
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

// read receives into frames for a device, and reports whether there is more that the kernel has
// handed over already.
func (s *socket) read(frames []Frame, by *base) (n int, more bool) {
	n = s.rx.receive(s.fd, frames)
	s.learn(frames[:n], by)
	return n, s.rx.pending()
}

// learn gives the frames that the receiver has just delivered the paths back to their senders, as
// far as a device remembers these.
func (s *socket) learn(frames []Frame, by *base) {
	for i := range frames {
		if !by.teaches(frames[i].Payload) {
			continue
		}
		from := &s.rx.names[s.rx.delivered[i]]
		from.clean()
		if frames[i].Path = s.paths.intern(from, maxLearned); frames[i].Path == NoPath {
			by.unknownPaths.Add(1)
		}
	}
}

// send implements Device.Transmit. It reports whether the socket's buffer has turned out to be full,
// which a sleeper could not know.
func (s *socket) send() (filled bool) { return s.tx.transmit(s.fd, &s.paths) }

// clearError forgets the error of an earlier send, which poll would report forever.
func (s *socket) clearError() { _, _ = unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR) }

// path implements Device.Path; it does not block.
func (s *socket) path(addr netip.AddrPort) (PathID, error) {
	if addr.Addr().Is4() != s.local.Addr().Is4() || addr.Port() == 0 || addr.Addr().IsUnspecified() {
		return NoPath, pathError(addr, mpierr.Arg, notOfRank(addr, s.local))
	}
	sa, err := s.encode(addr)
	if err != nil {
		return NoPath, pathError(addr, mpierr.Arg, err)
	}
	id := s.paths.intern(&sa, maxPaths)
	if id == NoPath {
		return NoPath, pathError(addr, mpierr.NoMem, errTooManyPaths)
	}
	return id, nil
}

// encode returns the kernel's form of the address of a peer.
func (s *socket) encode(addr netip.AddrPort) (sockaddr, error) {
	return encode(netip.AddrPortFrom(zoned(addr.Addr(), s.zone), addr.Port()))
}

// peer implements Device.Peer.
func (s *socket) peer(id PathID) netip.AddrPort {
	addr := s.paths.get(id).addr()
	return netip.AddrPortFrom(addr.Addr().WithZone(""), addr.Port())
}

var errTooManyPaths = fmt.Errorf("the device knows %d paths already", maxPaths)

func pathError(addr netip.AddrPort, class mpierr.Class, err error) error {
	return mpierr.New("resolve "+addr.String(), class, mpierr.NoRank, "%w", err)
}

func (s *socket) addStats(to *stats.Device) {
	s.tx.addStats(to)
	s.rx.addStats(to)
	to.RxDropped += socketDrops(s.fd)
}

// shut closes the socket.
func (s *socket) shut() error {
	if s.fd < 0 {
		return nil
	}
	return unix.Close(s.fd)
}
