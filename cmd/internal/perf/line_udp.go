package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// udpLine is a UDP socket that never blocks. Frames of one length are sent by one call
// and received by one, with UDP_SEGMENT and UDP_GRO, where the kernel has them.
type udpLine struct {
	bulk
	fd       int
	most     int // bytes of a payload
	segments int // frames that one call sends
	segment  int // bytes at which the kernel cuts what is sent, as it was last told
	room     int // bytes that may be in flight
	local    netip.AddrPort
	buf      []byte
	out      []byte
}

const (
	// udpMarkLen is a mark and the frame's length, at which a receiver finds the next.
	udpMarkLen = markLen + 4
	// udpSocketBuffer is what is asked for, and udpPerFrame what the kernel counts beside
	// a payload. Half of a buffer is taken for payloads.
	udpSocketBuffer, udpPerFrame = 8 << 20, 1024
	leastWindow, windowBursts    = 8, 8
	udpTries                     = 1 << 22
	// mostSegments and segmentedLen are what the kernel cuts into frames at most.
	mostSegments, segmentedLen = 64, 1<<16 - ipUDP - 1
)

func openUDPLine(ip netip.Addr, payload int) (*udpLine, error) {
	if !ip.Is4() || payload < udpMarkLen || payload > segmentedLen {
		return nil, fmt.Errorf("UDP floor: %v is not an IPv4 address, or %d bytes no payload", ip, payload)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("UDP floor: %w", err)
	}
	l := &udpLine{fd: fd, most: payload, segments: 1, buf: make([]byte, 1<<16)}
	for _, option := range []int{unix.SO_RCVBUF, unix.SO_RCVBUFFORCE, unix.SO_SNDBUF, unix.SO_SNDBUFFORCE} {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, udpSocketBuffer) // the limit of those without privilege holds
	}
	if buffer, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err == nil {
		l.room = buffer / 2
	}
	if unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1) == nil && unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, 0) == nil {
		l.segments = min(segmentedLen/payload, mostSegments)
	}
	l.out = make([]byte, l.segments*payload)
	if err := l.bind(ip); err != nil {
		return nil, errors.Join(fmt.Errorf("UDP floor: %w", err), unix.Close(fd))
	}
	return l, nil
}

func (l *udpLine) bind(ip netip.Addr) error {
	if err := unix.Bind(l.fd, &unix.SockaddrInet4{Addr: ip.As4()}); err != nil {
		return err
	}
	own, err := unix.Getsockname(l.fd)
	if err != nil {
		return err
	}
	four, ok := own.(*unix.SockaddrInet4)
	if !ok {
		return fmt.Errorf("the socket's own address is a %T", own)
	}
	l.local = netip.AddrPortFrom(ip, uint16(four.Port))
	return nil
}

func (l *udpLine) udp() *udpLine   { return l }
func (l *udpLine) payload() int    { return l.most }
func (l *udpLine) burst() int      { return l.segments }
func (l *udpLine) mode() string    { return "udp" }
func (l *udpLine) counts() string  { return "nstat tells what the kernel dropped" }
func (l *udpLine) address() []byte { return []byte(l.local.String()) }

func (l *udpLine) window() int {
	return max(min(l.room/(l.most+udpPerFrame), windowBursts*l.segments), leastWindow)
}

func (l *udpLine) taking(by taker) error {
	if by != socketTakes {
		return errors.New("the kernel takes AF_XDP frames only: this floor runs over UDP")
	}
	return nil
}

func (l *udpLine) connect(peer []byte) error {
	at, err := netip.ParseAddrPort(string(peer))
	if err != nil || !at.Addr().Is4() {
		return fmt.Errorf("%q is not an address and port of IPv4", peer)
	}
	return unix.Connect(l.fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
}

func (l *udpLine) send(number uint64, n, length int) error {
	for n > 0 {
		burst := min(n, l.segments)
		if err := l.cut(burst, length); err != nil {
			return err
		}
		for i := range burst {
			frame := l.out[i*length : (i+1)*length]
			putMark(frame, number)
			binary.LittleEndian.PutUint32(frame[markLen:], uint32(length))
			l.fill(frame[udpMarkLen:])
		}
		if err := l.sendOne(l.out[:burst*length]); err != nil {
			return err
		}
		n -= burst
	}
	return nil
}

// cut has the kernel cut what is sent next, n frames of length bytes.
func (l *udpLine) cut(n, length int) error {
	if length == l.segment || n == 1 && length <= l.segment || l.segments == 1 {
		return nil
	}
	if err := unix.SetsockoptInt(l.fd, unix.SOL_UDP, unix.UDP_SEGMENT, length); err != nil {
		return fmt.Errorf("set UDP_SEGMENT to %d: %w", length, err)
	}
	l.segment = length
	return nil
}

func (l *udpLine) sendOne(b []byte) error {
	for range udpTries {
		_, err := unix.Write(l.fd, b)
		if !transient(err) {
			return err
		}
	}
	return errors.New("the kernel does not take a datagram")
}

// receive makes one call, which may return several frames.
func (l *udpLine) receive(numbers []uint64) (int, error) {
	length, err := unix.Read(l.fd, l.buf)
	if transient(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n := 0
	for rest := l.buf[:length]; n < len(numbers); n++ {
		frame, number := firstFrame(rest)
		if frame == nil {
			break
		}
		numbers[n] = number
		l.drain(frame[udpMarkLen:])
		rest = rest[len(frame):]
	}
	return n, nil
}

// firstFrame returns the frame at the start of b and its number, nil if there is none.
func firstFrame(b []byte) (frame []byte, number uint64) {
	number, ok := mark(b)
	if !ok || len(b) < udpMarkLen {
		return nil, 0
	}
	length := int(binary.LittleEndian.Uint32(b[markLen:]))
	if length < udpMarkLen || length > len(b) {
		return nil, 0
	}
	return b[:length], number
}

// transient reports whether a later call may succeed. Refused is what a datagram
// gets that came before the peer.
func transient(err error) bool {
	switch err {
	case unix.EAGAIN, unix.EINTR, unix.ENOBUFS, unix.ECONNREFUSED:
		return true
	}
	return false
}

func (l *udpLine) close() error { return unix.Close(l.fd) }
