// Package agent lets the ranks of a host share XDP. A server owns the programs that execute requests, and the switch
// of each interface. Ranks enter by a Unix socket, and are served for as long as their connection lasts.
//
// Whoever may connect may enter. The server gives a rank descriptors of the maps that are its own, and never one of a
// program, a switch, or the maps of all.
package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// DefaultPath is where an agent listens, and ranks look for one, unless they are told otherwise.
const DefaultPath = "/run/xdprma/agent.sock"

// abi numbers what both sides have to agree on: these messages, the layout of a rank's maps, and the frames.
const abi = 2<<8 | wire.Version

// request is what a rank asks. Each message is a packet, and the server replies to them in turn.
type request struct {
	ABI       uint32
	Kind      kind
	Interface uint32 // of enter: the index of that at which the rank's frames arrive
	Slots     uint32 // of enter: sessions whose requests are to be executed
	Value     uint64 // of memory: bytes; of install and remove: the index of the chunk
}

type kind uint32

const (
	enter   kind = iota + 1 // with the rank's UDP socket; the reply has the maps of the rank, unless they come with the request
	memory                  // the reply has a file of memory
	install                 // with such a file
	remove
	quiesce
	probe  // with a UDP socket: whether it may enter
	status // with the index of a rank that has entered; the reply has a text about it, or none behind the last
)

// reply is followed by a text: that of an error, if Class is one.
type reply struct {
	ABI   uint32
	Class uint32 // an mpierr.Class; 0: done
	Mode  uint32 // of enter: a loader.Mode
	Most  uint32 // of enter: how many chunks may be installed at a time
}

// said is a reply with its text.
type said struct {
	reply
	text string
}

const (
	maxText  = 1024
	maxFiles = 8 // in one message
)

var (
	requestLen = binary.Size(request{})
	replyLen   = binary.Size(reply{})
)

// put is the bytes of a request or of a reply without text.
func put(m any) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, m)
	if err != nil {
		panic(err) // the messages have fixed sizes
	}
	return b
}

// parseRequest reads a request.
func parseRequest(b []byte) (r request, err error) {
	if len(b) != requestLen {
		return r, fmt.Errorf("a request has %d bytes, and not %d", len(b), requestLen)
	}
	_, err = binary.Decode(b, binary.LittleEndian, &r)
	if err == nil && r.ABI != abi {
		err = fmt.Errorf("the rank is of version %#x, and this of %#x: have both from one build", r.ABI, abi)
	}
	return r, err
}

// refusal is the reply that says err.
func refusal(err error) []byte {
	class := mpierr.ClassOf(err)
	if known := (*mpierr.Error)(nil); errors.As(err, &known) {
		err = known.Err // the rank says the rest
	}
	text := []byte(err.Error())
	return append(put(reply{ABI: abi, Class: uint32(class)}), text[:min(len(text), maxText)]...)
}

// parseReply reads a reply, whose error is that of the server.
func parseReply(b []byte) (r said, err error) {
	if len(b) < replyLen || len(b) > replyLen+maxText {
		return r, fmt.Errorf("a reply has %d bytes", len(b))
	}
	if _, err = binary.Decode(b[:replyLen], binary.LittleEndian, &r.reply); err != nil {
		return r, err
	}
	r.text = string(bytes.ToValidUTF8(b[replyLen:], []byte("?")))
	switch {
	case r.ABI != abi:
		return r, fmt.Errorf("the server is of version %#x, and this rank of %#x: have both from one build", r.ABI, abi)
	case r.Class != 0:
		return r, mpierr.New("ask the agent", mpierr.Class(r.Class), mpierr.NoRank, "%s", r.text)
	}
	return r, nil
}

// send sends a packet with descriptors, which stay the caller's.
func send(c *net.UnixConn, b []byte, files []int) error {
	var oob []byte
	if len(files) > 0 {
		oob = unix.UnixRights(files...)
	}
	_, _, err := c.WriteMsgUnix(b, oob, nil)
	return err
}

// receive returns a packet, whose descriptors are the caller's, also those that come with an error.
func receive(c *net.UnixConn) (b []byte, files []int, err error) {
	b, oob := make([]byte, 2048), make([]byte, unix.CmsgSpace(4*maxFiles))
	n, nOOB, flags, _, err := c.ReadMsgUnix(b, oob)
	messages, malformed := unix.ParseSocketControlMessage(oob[:max(0, nOOB)]) // an empty packet looks like the end, and may have some
	for _, m := range messages {
		if got, wrong := unix.ParseUnixRights(&m); wrong == nil {
			files = append(files, got...)
		}
	}
	if err == nil {
		err = malformed
	}
	if err == nil && flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) != 0 {
		err = fmt.Errorf("a packet has more than %d bytes or %d descriptors", len(b), maxFiles)
	}
	if err != nil {
		return nil, files, err
	}
	return b[:n], files, nil
}

func closeFiles(files []int) {
	for _, fd := range files {
		_ = unix.Close(fd)
	}
}

// peerOf returns the user who has made the other end of a connection.
func peerOf(c *net.UnixConn) (user uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	if controlled := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); controlled != nil || err != nil {
		return 0, errors.Join(controlled, err)
	}
	return peer.Uid, nil
}
