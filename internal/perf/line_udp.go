package perf

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// udpLine is a UDP socket that never blocks: the floor where AF_XDP cannot be had.
type udpLine struct {
	bulk
	fd    int
	most  int // bytes of a payload
	local netip.AddrPort
	buf   []byte
	out   []byte
}

const (
	// udpRoom is the bytes in flight that a socket buffer of the default size
	// takes for certain, and udpPerFrame what the kernel counts beside a payload.
	udpRoom, udpPerFrame   = 128 << 10, 1024
	leastWindow, udpWindow = 8, 64
	udpTries               = 1 << 22
)

func openUDPLine(ip netip.Addr, payload int) (*udpLine, error) {
	if !ip.Is4() || payload < markLen || payload > 1<<16-ipUDP {
		return nil, fmt.Errorf("UDP floor: %v is not an IPv4 address, or %d bytes no payload", ip, payload)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("UDP floor: %w", err)
	}
	l := &udpLine{fd: fd, most: payload, buf: make([]byte, 1<<16), out: make([]byte, payload)}
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

func (l *udpLine) payload() int    { return l.most }
func (l *udpLine) window() int     { return min(max(udpRoom/(l.most+udpPerFrame), leastWindow), udpWindow) }
func (l *udpLine) mode() string    { return "udp" }
func (l *udpLine) address() []byte { return []byte(l.local.String()) }

func (l *udpLine) answering(inKernel bool) error {
	if inKernel {
		return errors.New("the kernel answers AF_XDP frames only: this floor runs over UDP")
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
	putMark(l.out, number)
	for range n {
		l.fill(l.out[markLen:length])
		if err := l.sendOne(l.out[:length]); err != nil {
			return err
		}
	}
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

func (l *udpLine) receive(numbers []uint64) (int, error) {
	for n := range numbers {
		length, err := unix.Read(l.fd, l.buf)
		if transient(err) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		number, ok := mark(l.buf[:length])
		if !ok {
			return n, nil
		}
		numbers[n] = number
		l.drain(l.buf[markLen:length])
	}
	return len(numbers), nil
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
