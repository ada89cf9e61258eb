package userspace

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// batch is how many messages one system call moves, and how many received ones
// a UDP device holds until Release.
const batch = 64

// udpReceiver is the receive side of a UDP device; one goroutine uses it at a
// time.
type udpReceiver struct {
	messages  []mmsghdr // element i receives into buffer i
	names     []sockaddr
	buffers   []byte
	stride    int
	used      int        // buffers whose messages are with the caller
	delivered [batch]int // message that each frame of the last call came from

	frames, bytes, malformed atomic.Uint64
}

func (r *udpReceiver) init(maxPayload int) {
	r.stride = (maxPayload + 63) &^ 63
	r.messages = make([]mmsghdr, batch)
	r.names = make([]sockaddr, batch)
	r.buffers = make([]byte, batch*r.stride)
	iovs := make([]unix.Iovec, batch)
	for i := range iovs {
		iovs[i].Base = &r.buffers[i*r.stride]
		iovs[i].SetLen(maxPayload)
		r.messages[i].point(&iovs[i], &r.names[i])
	}
}

// receive stores payloads in frames and notes in delivered where they came from.
func (r *udpReceiver) receive(fd int, frames []Frame) int {
	to := min(r.used+len(frames), batch)
	if to == r.used {
		return 0
	}
	from := r.used
	got, errno := receiveMessages(fd, r.messages[from:to])
	if errno != 0 {
		// Nothing there, a signal, an ICMP error of an earlier send, or no memory
		// just now: the caller comes again in any case.
		return 0
	}
	n, bytes := 0, 0
	for i := from; i < from+got; i++ {
		m := &r.messages[i]
		m.header.Namelen = uint32(len(r.names[i])) // the kernel wrote the actual length
		if m.header.Flags&unix.MSG_TRUNC != 0 {
			r.malformed.Add(1)
			continue
		}
		at := i * r.stride
		frames[n].Payload = r.buffers[at : at+int(m.length) : at+int(m.length)]
		r.delivered[n] = i
		bytes += int(m.length)
		n++
	}
	// Messages that were not delivered need not be kept if they are the last.
	if n > 0 {
		r.used = r.delivered[n-1] + 1
		r.frames.Add(uint64(n))
		r.bytes.Add(uint64(bytes))
	}
	return n
}

func (r *udpReceiver) addStats(s *Stats) {
	s.RxFrames += r.frames.Load()
	s.RxBytes += r.bytes.Load()
	s.RxMalformed += r.malformed.Load()
}
