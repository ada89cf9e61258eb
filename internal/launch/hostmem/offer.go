package hostmem

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A segment's file is handed over through a socket of the network namespace, which has
// no name in the file system. Where the processes do not share a namespace, it is
// opened by way of /proc, which shows it only to processes that may trace its maker. Those
// may also take over the descriptor of a BPF array, which nobody can open.

// handLimit bounds handing over one file. It is far more than that takes.
const handLimit = 5 * time.Second

func (p *Place) socket() *net.UnixAddr {
	return &net.UnixAddr{Name: fmt.Sprintf("@xdprma-%016x", p.Nonce), Net: "unix"}
}

// offer gives the file to processes of this user that ask for it, until withdraw.
func (s *Segment) offer() {
	l, err := net.ListenUnix("unix", s.place.socket())
	if err != nil {
		return // there is /proc
	}
	s.offering, s.offered = l, make(chan struct{})
	go func() {
		defer close(s.offered)
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			give(c, s.file)
			_ = c.Close()
		}
	}()
}

// withdraw ends the offer. Nobody uses the file any more then.
func (s *Segment) withdraw() {
	if s.offering != nil {
		_ = s.offering.Close()
		<-s.offered
		s.offering = nil
	}
}

// give sends a file to a process of this user.
func give(c *net.UnixConn, file int) {
	if err := c.SetDeadline(time.Now().Add(handLimit)); err != nil {
		return
	}
	if trusted(c) {
		_, _, _ = c.WriteMsgUnix([]byte{0}, unix.UnixRights(file), nil) // who does not get it says so
	}
}

// trusted reports whether the process at the other end is this user's, or root's. The
// name of the socket is no proof: any process of the namespace can take it once it is
// free.
func trusted(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var peer *unix.Ucred
	if e := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil || err != nil {
		return false
	}
	return peer.Uid == uint32(os.Geteuid()) || peer.Uid == 0
}

// ask returns the file that a process of the network namespace offers, if that process
// is of this user, or root's.
func ask(p *Place) (int, error) {
	c, err := net.DialUnix("unix", nil, p.socket())
	if err != nil {
		return -1, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(handLimit)); err != nil {
		return -1, err
	}
	if !trusted(c) {
		return -1, errStranger
	}
	var text [1]byte
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := c.ReadMsgUnix(text[:], oob)
	if err != nil {
		return -1, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) == 0 {
		return -1, errors.Join(errRefused, err)
	}
	files, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(files) != 1 {
		return -1, errors.Join(errRefused, err)
	}
	return files[0], nil
}

var errStranger = errors.New("a process of another user offers it: memory of that one is not taken")

var errRefused = errors.New("it is not handed over: the processes must be of one user")
