package perf

import (
	"encoding/binary"
	"fmt"

	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// line moves bare frames between the two sides of a floor. A frame carries a
// number and is otherwise filler. Nothing is repeated, and only who measures
// notices a loss.
type line interface {
	// payload is the most bytes that a frame carries after Ethernet, IP and UDP,
	// or as much as these take.
	payload() int
	// window is how many frames may be in flight without overflowing the receiver.
	window() int
	// burst is how many frames are best sent at once.
	burst() int
	// send sends n frames with length bytes of payload each.
	send(number uint64, n, length int) error
	// receive stores the numbers of frames that have arrived and returns how
	// many; it does not block.
	receive(numbers []uint64) (int, error)
	// address is what the other side needs for connect.
	address() []byte
	connect(peer []byte) error
	// checking says whether frames are filled from memory and copied to it, with a
	// checksum at both ends.
	checking(on bool)
	// protecting is checking with frames of a level of security, which have tags in place of checksums.
	protecting(level secure.Level)
	// taking says what takes frames on this side.
	taking(by taker) error
	mode() string
	// counts tells what became of frames here, for an error.
	counts() string
	close() error
}

// taker is what takes the frames that arrive at one side.
type taker int

const (
	socketTakes   taker = iota // receive gets them
	kernelAnswers              // and receive gets nothing
	kernelKeeps                // the answer to the last that was sent; receive looks at memory
)

const (
	frameMagic = 0x726f6f6c66726d61 // tells a floor's frames from others
	markLen    = 24                 // the magic, the number and the word to add
	headers    = 14 + ipUDP         // bytes that stand for Ethernet, IP and UDP
	receiveMax = 64                 // frames that receive returns at most
	sendBatch  = 32                 // frames handed to the kernel at once
)

// bulk is the memory that frames are copied from or to, where they are.
type bulk struct {
	mem []byte
	at  int
	sum uint32 // of all that was copied, so that no compiler leaves it out

	guard  *secure.Guard // protects frames; nil: checksums do
	forged uint64        // frames that it has refused
}

// bulkLen is larger than a processor's own caches want to keep beside the rings.
const bulkLen = 1 << 20

func (b *bulk) checking(on bool) {
	b.mem, b.guard = nil, nil
	if on {
		b.mem = make([]byte, bulkLen)
	}
}

func (b *bulk) protecting(level secure.Level) {
	b.checking(true)
	b.guard = secure.NewGuard(&secure.Chains{}, secure.Suite{Level: level, Header: wire.HeaderLen}) // of both directions
}

// guarded reports whether a frame has a trailer, and something before it.
func (b *bulk) guarded(frame []byte) bool { return b.guard != nil && len(frame) > secure.TrailerLen }

// fill copies the next bytes of the memory to a frame.
func (b *bulk) fill(frame []byte) {
	switch {
	case b.mem == nil:
	case b.guarded(frame):
		data := frame[:len(frame)-secure.TrailerLen]
		copy(data, b.piece(len(data)))
		b.guard.Seal(frame)
	default:
		copy(frame, b.piece(len(frame)))
		b.sum ^= wire.Checksum(frame)
	}
}

// drain copies a frame to the next bytes of the memory.
func (b *bulk) drain(frame []byte) {
	switch {
	case b.mem == nil:
	case b.guarded(frame):
		data, verdict := b.guard.Open(frame, 0)
		if verdict != secure.Genuine {
			b.forged++
			return
		}
		copy(b.piece(len(data)), data)
	default:
		b.sum ^= wire.Checksum(frame)
		copy(b.piece(len(frame)), frame)
	}
}

// piece returns the next n bytes of the memory.
func (b *bulk) piece(n int) []byte {
	if b.at+n > len(b.mem) {
		b.at = 0
	}
	b.at += n
	return b.mem[b.at-n : b.at]
}

func putMark(b []byte, number uint64) {
	binary.LittleEndian.PutUint64(b, frameMagic)
	binary.LittleEndian.PutUint64(b[8:], number)
	binary.LittleEndian.PutUint64(b[16:], 1)
}

// mark returns the number in a payload, false if it is not that of a floor's frame.
func mark(b []byte) (number uint64, ok bool) {
	if len(b) < markLen || binary.LittleEndian.Uint64(b) != frameMagic {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b[8:]), true
}

// openLine opens a device of a floor on an interface of the thread's namespace,
// or a UDP socket on an address, or both.
func openLine(device FloorDevice, at FloorPlace) (line, error) {
	switch device {
	case FloorXDP, FloorXDPGeneric:
		return openXDPLine(at.Interface, device == FloorXDPGeneric)
	case FloorUDP:
		return openUDPLine(at.Address, at.Payload)
	case FloorJoined:
		return openJoinedLine(at)
	}
	return nil, fmt.Errorf("there is no floor over %q", device)
}
