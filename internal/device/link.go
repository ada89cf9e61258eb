package device

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// link watches the interface of a device, and whether it has the device's address. A
// device whose interface was removed is lost for good. An interface that is down may come
// up again, and an address come back.
type link struct {
	name  string
	index int
	addr  netip.Addr // without a zone
	log   *slog.Logger
	file  *os.File      // a netlink socket, nil before open
	ended chan struct{} // closed when nothing reads it any more
	down  bool          // as far as was heard
	bare  bool          // the address was removed, as far as was heard

	losing sync.Once
	alive  context.Context // ends when the device is lost
	end    context.CancelCauseFunc
}

// begin has the device not be lost.
func (l *link) begin() { l.alive, l.end = context.WithCancelCause(context.Background()) }

// open watches ifi, which is in the goroutine's network namespace and has the address addr.
func (l *link) open(ifi *net.Interface, addr netip.Addr, log *slog.Logger) error {
	l.begin()
	l.name, l.index, l.addr, l.log = ifi.Name, ifi.Index, addr, log
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err == nil {
		l.file = os.NewFile(uintptr(fd), "netlink")
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK,
			Groups: unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR})
	}
	if err == nil {
		err = l.ask() // it may have gone down, or away, before
	}
	if err != nil {
		_ = l.file.Close()
		l.file = nil
		return fmt.Errorf("watch interface %s: %w", l.name, err)
	}
	l.ended = make(chan struct{})
	go l.watch()
	return nil
}

// ask makes the kernel tell the present state.
func (l *link) ask() error {
	var b [unix.SizeofNlMsghdr + unix.SizeofIfInfomsg]byte
	binary.NativeEndian.PutUint32(b[0:], uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.RTM_GETLINK)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(b[unix.SizeofNlMsghdr+4:], uint32(l.index))
	_, err := l.file.Write(b[:])
	return err
}

func (l *link) watch() {
	defer close(l.ended)
	buf := make([]byte, 1<<16)
	for {
		n, err := l.file.Read(buf)
		if errors.Is(err, unix.ENOBUFS) { // messages were lost
			n, err = 0, l.ask()
		}
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				l.log.Warn("the interface is not watched any more: its removal will look like silent peers", "interface", l.name, "error", err)
			}
			return
		}
		messages, _ := syscall.ParseNetlinkMessage(buf[:n]) // the kernel's are well formed
		for _, m := range messages {
			l.take(m.Header.Type, m.Data)
		}
	}
}

// take takes a message of the kernel in.
func (l *link) take(kind uint16, data []byte) {
	switch kind {
	case unix.NLMSG_ERROR:
		if len(data) >= 4 && -int32(binary.NativeEndian.Uint32(data)) == int32(unix.ENODEV) {
			l.removed()
		}
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		// Bridges use the same messages to tell of their ports.
		if len(data) < unix.SizeofIfInfomsg || data[0] != unix.AF_UNSPEC || binary.NativeEndian.Uint32(data[4:]) != uint32(l.index) {
			return
		}
		if kind == unix.RTM_DELLINK {
			l.removed()
			return
		}
		const up = unix.IFF_UP | unix.IFF_LOWER_UP // IFF_RUNNING comes up to a second later
		l.set(binary.NativeEndian.Uint32(data[8:])&up != up)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		if len(data) >= unix.SizeofIfAddrmsg && binary.NativeEndian.Uint32(data[4:]) == uint32(l.index) && addressIn(data) == l.addr {
			l.setBare(kind == unix.RTM_DELADDR)
		}
	}
}

// addressIn returns the address that a struct ifaddrmsg and its attributes tell of.
func addressIn(data []byte) (ip netip.Addr) {
	attributes, _ := nl.ParseRouteAttr(data[unix.SizeofIfAddrmsg:]) // the kernel's are well formed
	for _, a := range attributes {
		// On a link between two addresses IFA_ADDRESS is the other end's.
		if a.Attr.Type == unix.IFA_LOCAL || a.Attr.Type == unix.IFA_ADDRESS && !ip.IsValid() {
			ip, _ = netip.AddrFromSlice(a.Value)
		}
	}
	return ip
}

// setBare takes in whether the address was removed, and logs it if that is new.
func (l *link) setBare(bare bool) {
	if bare == l.bare {
		return
	}
	if l.bare = bare; !bare {
		l.log.Warn("the interface has the address of this rank again", "interface", l.name, "address", l.addr)
		return
	}
	advice := "add it again (ip address add)"
	if l.addr.Is6() {
		advice += "; the kernel removes the IPv6 addresses of an interface that is set down, unless the sysctl net.ipv6.conf." + l.name + ".keep_addr_on_down is 1"
	}
	l.log.Warn("the address of this rank was removed from its interface, and peers do not reach the rank without it: "+advice,
		"interface", l.name, "address", l.addr)
}

// set takes in whether the link is down, and logs it if that is new.
func (l *link) set(down bool) {
	if down == l.down {
		return
	}
	if l.down = down; down {
		l.log.Warn("the link of the interface is down: no peer can be reached until it is up", "interface", l.name)
	} else {
		l.log.Warn("the link of the interface is up again", "interface", l.name)
	}
}

func (l *link) removed() {
	l.lose(errors.New("it was removed, or moved to another network namespace"))
}

// lose says that the device is lost. Only the first reason counts.
func (l *link) lose(why error) {
	l.losing.Do(func() {
		why = fmt.Errorf("this rank has lost its interface %s and reaches no other: %w", l.name, why)
		l.log.Error("the device is lost, no peer can be reached", "interface", l.name, "error", why)
		l.end(why)
	})
}

// lost reports whether lose was called.
func (l *link) lost() bool { return l.alive.Err() != nil }

// close ends the watch.
func (l *link) close() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	<-l.ended
	return err
}
