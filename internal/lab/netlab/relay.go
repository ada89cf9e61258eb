package netlab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Relay stands in the link of a rank: all frames to that rank and from it go through it. Its
// methods may be called concurrently.
type Relay struct {
	port    uint16
	decide  func(*Relay, *Frame)
	ends    [2]*os.File // packet sockets: at the bridge, and at the rank
	loops   sync.WaitGroup
	lost    atomic.Uint64
	closing atomic.Bool
}

// The ends of a relay.
const (
	atBridge = iota
	atRank
)

const (
	relayBuffer = 32 << 20 // bytes of a socket: the relay may be late by many frames
	relayRetry  = 50 * time.Microsecond
	relayTries  = 200 // to send a frame over a link that is full
)

// Intercept puts a relay into the link of a rank, which blocks for as long as it takes to build
// one. The relay passes what is not UDP over IPv4, without options, from or to a port. For each
// other frame it calls decide, which passes the frame on, or not, or something else, now or
// later. It is called from two goroutines, one a direction. Close removes the relay. Intercept
// needs a bridge, and must not run beside other calls of it or of Close. A rank can have one relay.
func (l *Lab) Intercept(rank int, port uint16, decide func(*Relay, *Frame)) (*Relay, error) {
	if l.bridge == nil {
		return nil, errors.New("netlab: this lab has no bridge to put a relay before: make one of 3 ranks")
	}
	r := &Relay{port: port, decide: decide}
	if err := l.insert(rank, r); err != nil {
		return nil, errors.Join(fmt.Errorf("put a relay into the link of rank %d: %w", rank, err), r.close())
	}
	l.relays = append(l.relays, r)
	for from := range r.ends {
		r.loops.Go(func() { r.loop(from) })
	}
	return r, nil
}

// insert takes the rank's port off the bridge, and puts one end of a new pair in its place. The
// relay has the old port, with the program that AcceptAnswers may have attached, and the new
// pair's other end.
func (l *Lab) insert(rank int, r *Relay) error {
	b, names := l.bridge, [2]string{atBridge: fmt.Sprintf("relay%d", rank), atRank: l.Interface(rank)}
	port := fmt.Sprintf("port%d", rank)
	if err := l.addVeth(b, port, mac(3, rank), b, names[atBridge], mac(4, rank)); err != nil {
		return err
	}
	ends := []string{names[atBridge], port}
	for _, name := range ends {
		if err := b.up(name); err != nil {
			return err
		}
	}
	for _, name := range ends { // until then either end drops what it is to send, and the bridge would what it receives
		if err := b.awaitUp(name, func() bool { return true }); err != nil {
			return err
		}
	}
	old, err := b.handle.LinkByName(names[atRank])
	if err != nil {
		return err
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Index: old.Attrs().MasterIndex}}
	err = within(b.ns, func() (err error) {
		for end, name := range names {
			if r.ends[end], err = packetSocket(name); err != nil {
				return fmt.Errorf("packet socket at %s: %w", name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := b.handle.LinkSetNoMaster(old); err != nil {
		return err
	}
	return b.enslave(port, bridge)
}

// packetSocket opens a socket for all frames of an interface in the thread's namespace. Each
// frame has a struct virtio_net_hdr before it, so that checksums may stay partial, and several
// datagrams joined.
func packetSocket(name string) (*os.File, error) {
	at, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "relay "+name)
	for _, option := range []struct{ level, name, value int }{
		{unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1}, {unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, relayBuffer}, {unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, relayBuffer},
	} {
		if err == nil {
			err = unix.SetsockoptInt(fd, option.level, option.name, option.value)
		}
	}
	if err == nil {
		all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: at.Index})
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// loop takes in what comes to one end, until the relay is closed.
func (r *Relay) loop(from int) {
	b := make([]byte, vnetLen+ethernetLen+1<<16)
	for {
		n, err := r.ends[from].Read(b)
		switch {
		case r.closing.Load():
			return
		case err != nil: // the interface was down, or a kernel before Linux 6.2 cannot tell how datagrams are joined
			r.lost.Add(1)
			time.Sleep(relayRetry)
			continue
		}
		f := newFrame(b[:n], from == atBridge)
		if f.isUDP(r.port) {
			r.decide(r, f)
		} else {
			r.Pass(f)
		}
	}
}

// Pass sends a frame on. It waits for a while if the link is full. A frame that the kernel does
// not take is lost, and so is one that comes after Close.
func (r *Relay) Pass(f *Frame) {
	to := r.ends[atBridge]
	if f.ToRank {
		to = r.ends[atRank]
	}
	for range relayTries {
		_, err := to.Write(f.data)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.ENOBUFS) {
			break
		}
		time.Sleep(relayRetry)
	}
	r.lost.Add(1)
}

// Lost returns how many frames the relay has lost: those that it could not read, and those that
// the kernel did not take.
func (r *Relay) Lost() uint64 { return r.lost.Load() }

// close ends the loops and closes the sockets.
func (r *Relay) close() error {
	r.closing.Store(true)
	var errs []error
	for _, end := range r.ends {
		if end != nil {
			errs = append(errs, end.Close())
		}
	}
	r.loops.Wait()
	return errors.Join(errs...)
}
