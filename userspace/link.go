package userspace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// link watches the interface of a device. A device whose interface was removed is lost
// for good. An interface that is down may come up again.
type link struct {
	name  string
	index int
	log   *slog.Logger
	file  *os.File      // a netlink socket, nil before open
	ended chan struct{} // closed when nothing reads it any more
	down  bool          // as far as was heard

	mu   sync.Mutex
	why  error       // why the device is lost, or nil
	tell func(error) // to be told so, or nil
}

// open watches ifi, which is in the goroutine's network namespace.
func (l *link) open(ifi *net.Interface, log *slog.Logger) error {
	l.name, l.index, l.log = ifi.Name, ifi.Index, log
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err == nil {
		l.file = os.NewFile(uintptr(fd), "netlink")
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK})
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
	}
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
	l.mu.Lock()
	if l.why != nil {
		l.mu.Unlock()
		return
	}
	l.why = fmt.Errorf("this rank has lost its interface %s and reaches no other: %w", l.name, why)
	why, tell := l.why, l.tell
	l.mu.Unlock()
	l.log.Error("the device is lost, no peer can be reached", "interface", l.name, "error", why)
	if tell != nil {
		tell(why)
	}
}

// onLoss implements Device.OnLoss.
func (l *link) onLoss(tell func(error)) {
	l.mu.Lock()
	l.tell = tell
	why := l.why
	l.mu.Unlock()
	if why != nil {
		tell(why)
	}
}

// lost reports whether lose was called.
func (l *link) lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why != nil
}

// close ends the watch.
func (l *link) close() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	<-l.ended
	return err
}
