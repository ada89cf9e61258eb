package netlab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Forger is somebody beside the TCP connections between a rank's port and other ranks: he reads all
// segments, changes none, and sends some that neither end has sent. Connections are over IPv4. Its
// methods must not be called concurrently.
type Forger struct {
	lab     *Lab
	port    uint16
	tap     int   // a packet socket at the rank's port of the bridge
	ports   []int // one for each rank, which sends alone
	streams []*Stream
}

// Stream is one direction of a connection, as it has passed so far.
type Stream struct {
	From, To netip.AddrPort

	next, ack uint32   // of the next byte, and of the other direction's that From expects
	kept      [][]byte // some frames that have passed
}

// Forgery is a way to forge segments. Segment returns the n-th one, as a frame.
type Forgery struct {
	Name    string
	Segment func(s *Stream, n int) []byte
}

// Forgeries lists what a Forger can send. Each segment is the next one of its stream, unless its name
// says something else.
var Forgeries = []Forgery{
	{"FIN", func(s *Stream, _ int) []byte { return s.segment(tcpFIN|tcpACK, 0, nil) }},
	{"RST", func(s *Stream, _ int) []byte { return s.segment(tcpRST, 0, nil) }},
	{"RST within the window", func(s *Stream, n int) []byte { return s.segment(tcpRST, 1+n%1000, nil) }},
	{"noise", func(s *Stream, n int) []byte {
		b := make([]byte, 1+n%100)
		for i := range b {
			b[i] = byte(0xff - n - i)
		}
		return s.segment(tcpPSH|tcpACK, 0, b)
	}},
	{"alert in clear", func(s *Stream, _ int) []byte { // by TLS: "close notify"
		return s.segment(tcpPSH|tcpACK, 0, []byte{21, 3, 3, 0, 2, 1, 0})
	}},
	{"earlier segment", func(s *Stream, n int) []byte { return s.kept[n%len(s.kept)] }},
}

const (
	tcpFIN, tcpSYN, tcpRST, tcpPSH, tcpACK = 1, 2, 4, 8, 16

	tapBuffer   = 8 << 20 // bytes
	mostStreams = 64      // the oldest go
	mostFrames  = 32      // kept of a stream
	mostRead    = 4096    // frames at a time

	frameIP  = ethernetLen
	frameTCP = frameIP + 20
	frameEnd = frameTCP + 20
)

// Forge returns a Forger beside the connections to a port of a rank. It knows those that begin from now
// on. It needs a bridge, as Intercept does, and lives until its Close.
func (l *Lab) Forge(rank int, port uint16) (*Forger, error) {
	if l.bridge == nil {
		return nil, errors.New("netlab: this lab has no bridge at which segments could be read: make one of 3 ranks")
	}
	f := &Forger{lab: l, port: port, tap: -1}
	err := within(l.bridge.ns, func() (err error) {
		if f.tap, err = tapSocket(l.Interface(rank), unix.ETH_P_ALL); err != nil {
			return err
		}
		for other := range l.nodes {
			fd, err := tapSocket(l.Interface(other), 0)
			if err != nil {
				return err
			}
			f.ports = append(f.ports, fd)
		}
		return unix.SetsockoptInt(f.tap, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, tapBuffer)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("packet sockets at the bridge: %w", err), f.Close())
	}
	return f, nil
}

// tapSocket opens a packet socket at an interface of the thread's namespace, which receives frames of a protocol.
func tapSocket(name string, protocol uint16) (int, error) {
	at, err := net.InterfaceByName(name)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	big := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, protocol))
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: big, Ifindex: at.Index}); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// Close closes the sockets. It is idempotent.
func (f *Forger) Close() error {
	var errs []error
	for _, fd := range append(f.ports, f.tap) {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	f.ports, f.tap = nil, -1
	return errors.Join(errs...)
}

// Look reads what has passed, and returns the streams to the port, or from it.
func (f *Forger) Look(toPort bool) ([]*Stream, error) {
	b := make([]byte, 1<<17)
	for range mostRead {
		n, _, err := unix.Recvfrom(f.tap, b, 0)
		if errors.Is(err, unix.EAGAIN) {
			break
		} else if err != nil && !errors.Is(err, unix.EINTR) {
			return nil, err
		}
		f.note(b[:max(n, 0)])
	}
	return slices.DeleteFunc(slices.Clone(f.streams), func(s *Stream) bool { return (s.To.Port() == f.port) != toPort }), nil
}

// note takes in a frame.
func (f *Forger) note(b []byte) {
	be := binary.BigEndian
	if len(b) < frameEnd || be.Uint16(b[12:]) != unix.ETH_P_IP || b[frameIP] != plainIPv4 || b[frameIP+9] != unix.IPPROTO_TCP {
		return
	}
	tcp := b[frameTCP:]
	from := netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[frameIP+12:])), be.Uint16(tcp))
	to := netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[frameIP+16:])), be.Uint16(tcp[2:]))
	if from.Port() != f.port && to.Port() != f.port {
		return
	}
	flags, seq := tcp[13], be.Uint32(tcp[4:])
	end := seq + uint32(max(0, int(be.Uint16(b[frameIP+2:]))-20-4*int(tcp[12]>>4)))
	if flags&(tcpFIN|tcpSYN) != 0 {
		end++
	}
	i := slices.IndexFunc(f.streams, func(s *Stream) bool { return s.From == from && s.To == to })
	if flags&tcpRST != 0 { // the connection has ended
		f.streams = slices.DeleteFunc(f.streams, func(s *Stream) bool { return s.From == from && s.To == to || s.From == to && s.To == from })
		return
	}
	if flags&tcpSYN != 0 {
		if i >= 0 {
			f.streams = slices.Delete(f.streams, i, i+1)
		}
		f.streams = append(f.streams, &Stream{From: from, To: to, next: end})
		f.streams = f.streams[max(0, len(f.streams)-mostStreams):]
		i = len(f.streams) - 1
	} else if i < 0 {
		return
	}
	s := f.streams[i]
	if int32(end-s.next) > 0 {
		s.next = end
	}
	if flags&tcpACK != 0 {
		s.ack = be.Uint32(tcp[8:])
	}
	if len(b) <= ethernetLen+f.lab.MTU() && end != seq && flags&tcpSYN == 0 && len(s.kept) < mostFrames {
		s.kept = append(s.kept, slices.Clone(b))
		enterSums(s.kept[len(s.kept)-1]) // which may have been partial
	}
}

// segment returns a frame with a segment of the stream that is ahead of the next one by so many bytes.
func (s *Stream) segment(flags byte, ahead int, payload []byte) []byte {
	b, be := make([]byte, frameEnd, frameEnd+len(payload)), binary.BigEndian
	copy(b, mac(0, rankAt(s.To.Addr())))
	copy(b[6:], mac(0, rankAt(s.From.Addr())))
	be.PutUint16(b[12:], unix.ETH_P_IP)
	ip, tcp := b[frameIP:frameTCP], b[frameTCP:]
	ip[0], ip[6], ip[8], ip[9] = plainIPv4, 0x40, 64, unix.IPPROTO_TCP
	be.PutUint16(ip[2:], uint16(40+len(payload)))
	copy(ip[12:], s.From.Addr().AsSlice())
	copy(ip[16:], s.To.Addr().AsSlice())
	be.PutUint16(tcp, s.From.Port())
	be.PutUint16(tcp[2:], s.To.Port())
	be.PutUint32(tcp[4:], s.next+uint32(ahead))
	if flags&tcpACK != 0 {
		be.PutUint32(tcp[8:], s.ack)
	}
	tcp[12], tcp[13] = 5<<4, flags
	be.PutUint16(tcp[14:], 1<<10) // the window
	b = append(b, payload...)
	enterSums(b)
	return b
}

// rankAt returns the rank that has an address.
func rankAt(a netip.Addr) int {
	b := a.As4()
	return int(binary.BigEndian.Uint16(b[2:])) - 1
}

// enterSums enters the checksums of IP and TCP in a frame.
func enterSums(b []byte) {
	be := binary.BigEndian
	ip := b[frameIP:frameTCP]
	tcp := b[frameTCP : frameIP+int(be.Uint16(ip[2:]))] // what follows is padding
	clear(ip[10:12])
	be.PutUint16(ip[10:], checksum(0, ip))
	clear(tcp[16:18])
	be.PutUint16(tcp[16:], checksum(uint32(unix.IPPROTO_TCP+len(tcp)), ip[12:20], tcp))
}

// checksum returns that of the internet, over parts of which only the last may be odd.
func checksum(sum uint32, parts ...[]byte) uint16 {
	for _, b := range parts {
		for ; len(b) > 1; b = b[2:] {
			sum += uint32(binary.BigEndian.Uint16(b))
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// Send reads what has passed, sends the n-th segment of a forgery over the last link to its receiver in
// each stream to the port, or from it, and returns how many these were.
func (f *Forger) Send(a Forgery, n int, toPort bool) (sent int, err error) {
	streams, err := f.Look(toPort)
	if err != nil {
		return 0, err
	}
	for _, s := range streams {
		to := rankAt(s.To.Addr())
		if to < 0 || to >= len(f.ports) || len(s.kept) == 0 { // nothing has been said yet
			continue
		}
		if err := f.write(f.ports[to], a.Segment(s, n)); err != nil {
			return sent, fmt.Errorf("send a segment, %s, to %v: %w", a.Name, s.To, err)
		}
		sent++
	}
	return sent, nil
}

// write sends a frame, and waits for a while if the link is full.
func (f *Forger) write(fd int, b []byte) (err error) {
	for range relayTries {
		if _, err = unix.Write(fd, b); err == nil || !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return err
		}
		time.Sleep(relayRetry)
	}
	return err
}
