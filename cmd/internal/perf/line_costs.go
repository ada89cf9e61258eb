package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// costLine sends and receives frames through the socket of another line as a step of Costs
// says.
type costLine struct {
	line
	socket   *udpLine
	step     int
	bulk     bulk // at the sender what is copied from, at the receiver what is copied to
	slots    []byte
	stride   int // bytes from slot to slot
	slot     int // the next, in bytes
	pieces   []unix.Iovec
	out      [1]mmsghdr
	in       []mmsghdr
	inPieces []unix.Iovec
	buffers  [][]byte
	got      int // buffers that the kernel has filled
	next     int // the first of them that is not handed out

	messages *histogram    // for how long each message kept this side busy
	busy     time.Duration // sending, and receiving what has arrived, since the last of these
	handled  int           // messages since then
}

const (
	coldSlots, coldBuffers = 1024, 16
	slotUnit               = 2048 // bytes; a slot takes a whole number of them
	// bufferLen holds the longest message. Buffers that began a multiple of 4096 bytes
	// apart would share a few lines of a processor's cache.
	bufferLen = 1<<16 + 64
)

// newCostLine returns a line for one step over the socket of l.
func newCostLine(l line, step int) (*costLine, error) {
	of, ok := l.(interface{ udp() *udpLine })
	if !ok {
		return nil, fmt.Errorf("costs are of joined UDP frames, and this floor runs over %s", l.mode())
	}
	c := &costLine{line: l, socket: of.udp(), step: step, messages: newHistogram()}
	slots := c.burst()
	c.stride = l.payload()
	if step >= costCold {
		slots, c.stride = coldSlots, (c.stride+slotUnit-1)/slotUnit*slotUnit
	}
	c.slots = make([]byte, slots*c.stride)
	c.pieces = make([]unix.Iovec, c.burst())
	c.bulk.checking(step >= costCopySent)
	c.in, c.inPieces, c.buffers = make([]mmsghdr, coldBuffers), make([]unix.Iovec, coldBuffers), make([][]byte, coldBuffers)
	memory := make([]byte, coldBuffers*bufferLen)
	for i := range c.in {
		c.buffers[i] = memory[i*bufferLen:][:bufferLen:bufferLen]
		c.inPieces[i].Base = &c.buffers[i][0]
		c.inPieces[i].SetLen(bufferLen)
		c.in[i].content(c.inPieces[i : i+1])
	}
	return c, nil
}

func (l *costLine) window() int {
	if l.step >= costAcknowledged {
		return min(l.line.window(), acknowledgedFrames)
	}
	return l.line.window()
}

// burst is the frames of a message. It is the same in all steps.
func (l *costLine) burst() int {
	return max(min(l.line.burst(), l.line.window()/acksPerWindow), 1)
}

// every is how many frames the receiver acknowledges at once.
func (l *costLine) every() int {
	if l.step >= costAcknowledged {
		return l.burst()
	}
	return l.window() / acksPerWindow
}

// spend takes in that n frames kept this side busy for a time. The next message bears the
// time of an acknowledgement, and messages that one call received share its time.
func (l *costLine) spend(d time.Duration, n int) {
	l.busy += d
	if n > 1 || l.burst() == 1 {
		l.handled++
	}
	if l.handled > 0 && l.next == l.got {
		l.messages.record(l.busy / time.Duration(l.handled))
		l.busy, l.handled = 0, 0
	}
}

// spent returns the median of the µs that this side is busy for a message.
func (l *costLine) spent() float64 { return l.messages.microseconds(50) }

// send sends one message; n is not above burst.
func (l *costLine) send(number uint64, n, length int) error {
	start := time.Now()
	err := l.sendPieces(number, n, length)
	l.spend(time.Since(start), n)
	return err
}

func (l *costLine) sendPieces(number uint64, n, length int) error {
	if l.step < costPieces {
		return l.line.send(number, n, length)
	}
	if err := l.socket.cut(n, length); err != nil {
		return err
	}
	for i := range n {
		frame := l.slots[l.slot:][:length]
		if l.slot += l.stride; l.slot == len(l.slots) {
			l.slot = 0
		}
		putMark(frame, number)
		binary.LittleEndian.PutUint32(frame[markLen:], uint32(length))
		if l.step >= costCopySent {
			copy(frame[udpMarkLen:], l.bulk.piece(length-udpMarkLen))
		}
		if l.step >= costSumSent {
			l.bulk.sum ^= wire.Checksum(frame)
		}
		l.pieces[i].Base = &frame[0]
		l.pieces[i].SetLen(length)
	}
	l.out[0].content(l.pieces[:n])
	for range udpTries {
		if _, err := sendMessages(l.socket.fd, l.out[:]); !transient(err) {
			return err
		}
	}
	return errors.New("the kernel does not take a message")
}

// receive hands out the frames of one message.
func (l *costLine) receive(numbers []uint64) (int, error) {
	start := time.Now()
	n, err := l.receiveBuffers(numbers)
	if n > 0 {
		l.spend(time.Since(start), n)
	}
	return n, err
}

// receiveBuffers asks the kernel when no message is left.
func (l *costLine) receiveBuffers(numbers []uint64) (int, error) {
	if l.step < costCold {
		return l.line.receive(numbers)
	}
	if l.next == l.got {
		got, err := receiveMessages(l.socket.fd, l.in)
		if transient(err) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		l.got, l.next = got, 0
	}
	rest := l.buffers[l.next][:l.in[l.next].length]
	l.next++
	n := 0
	for n < len(numbers) {
		frame, number := firstFrame(rest)
		if frame == nil {
			break
		}
		if l.step >= costSumReceived {
			l.bulk.sum ^= wire.Checksum(frame)
		}
		if l.step >= costCopyReceived {
			copy(l.bulk.piece(len(frame)-udpMarkLen), frame[udpMarkLen:])
		}
		numbers[n] = number
		n++
		rest = rest[len(frame):]
	}
	return n, nil
}
