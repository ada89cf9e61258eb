package device

import (
	"context"
	"errors"
	"fmt"
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
	socket
}

var _ Device = (*UDP)(nil)

// OpenUDP opens a UDP device at config's address, which is required and decides on the
// interface. It does not block. The goroutine must run in the network namespace that the
// device is to use.
func OpenUDP(config Config) (*UDP, error) {
	u := &UDP{base: base{job: config.Job, keyed: config.HelloKey != nil}, socket: socket{fd: -1}}
	if err := u.open(config); err != nil {
		_ = u.Close() // the first error is the one to tell
		return nil, err
	}
	return u, nil
}

func (u *UDP) open(c Config) error {
	if err := u.begin(&c); err != nil {
		return err
	}
	if err := u.sleeper.open(u.fd); err != nil {
		return openError(mpierr.Unsupported, err)
	}
	u.facts.Mode = NewMode("udp")
	return nil
}

// begin makes the socket, and what does not depend on who else sees frames.
func (u *UDP) begin(c *Config) error {
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
	if err := u.bind(netip.AddrPortFrom(ip, c.Port), ifi.Index); err != nil {
		return openError(mpierr.Unsupported, err)
	}
	if err := u.setOptions(); err != nil {
		return openError(mpierr.Unsupported, err)
	}
	u.facts.Slab = engine.HeapSlab(c.Slots, 0, min(c.MTU-udpLen-ipLen(ip), maxUDPPayload))
	u.prepare(u.facts.Slab, c.Logger)
	u.facts.Local, u.facts.Interface, u.facts.Alive = u.local, ifi.Name, u.link.alive
	u.facts.Joins, u.facts.Room = u.segments, u.room
	if got, err := unix.GetsockoptInt(u.fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err == nil && got < socketBuffer {
		c.Logger.Info("the UDP receive buffer is smaller than wished, bursts may be lost: raise net.core.rmem_max",
			"bytes", got, "wished", 2*socketBuffer)
	}
	return nil
}

func openError(class mpierr.Class, err error) error {
	return mpierr.New("open device", class, mpierr.NoRank, "%w", err)
}

// Receive implements Device. It returns at most 64 messages between two calls of
// Release.
func (u *UDP) Receive(frames []Frame) int {
	n, more := u.read(frames, &u.base)
	if more {
		u.sleeper.wake() // the socket does not wake whoever sleeps on it
	}
	return n
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
	if u.send() {
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

// Path implements Device; it does not block.
func (u *UDP) Path(_ context.Context, addr netip.AddrPort) (PathID, error) {
	return u.path(addr)
}

// Peer implements Device.
func (u *UDP) Peer(id PathID) netip.AddrPort {
	return u.peer(id)
}

// Stats implements Device. RxBytes and TxBytes count UDP payload. RxDropped
// includes handshakes that cannot be answered because the senders of 65536
// others are remembered.
func (u *UDP) Stats(s *stats.Device) {
	u.socket.addStats(s)
	u.sleeper.addStats(s)
	s.RxDropped += u.unknownPaths.Load()
}

// Close implements Device.
func (u *UDP) Close() error {
	u.close.Do(func() {
		u.err = errors.Join(u.link.close(), u.sleeper.close(), u.shut())
	})
	return u.err
}
