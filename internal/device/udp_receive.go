package device

import (
	"sync/atomic"

	"github.com/xdprma/xdprma/stats"
	"golang.org/x/sys/unix"
)

const (
	// batch is how many messages a UDP device hands out until Release.
	batch = 64
	// coalesced is the number of buffers that hold whatever the kernel may deliver as
	// one, 1 MiB in all. Frames beyond batch wait in them.
	coalesced = 16
	// wholeLen is the length of such a buffer. Buffers that begin a multiple of 4096
	// bytes apart would share a few lines of a processor's cache.
	wholeLen = 1<<16 + 64
)

// udpReceiver is the receive side of a UDP device; one goroutine uses it at a
// time. The kernel delivers datagrams of one sender and one length that arrived
// together as one message, which receive cuts.
type udpReceiver struct {
	longest   int           // bytes of a payload
	messages  []mmsghdr     // element i receives into buffer i
	controls  []segmentSize // likewise
	names     []sockaddr
	buffers   []byte
	stride    int
	got       int        // buffers that the kernel filled
	next      int        // the first of them that is not cut to its end
	offset    int        // of what is left in it
	held      int        // payloads that are with the caller
	delivered [batch]int // message that each frame of the last call came from

	frames, bytes, malformed atomic.Uint64
}

// init prepares buffers; they are few and long if the kernel coalesces.
func (r *udpReceiver) init(maxPayload int, coalesces bool) {
	buffers, length := batch, maxPayload
	r.stride = (maxPayload + 63) &^ 63
	if coalesces {
		buffers, length, r.stride = coalesced, wholeLen, wholeLen
	}
	r.longest = maxPayload
	r.messages = make([]mmsghdr, buffers)
	r.controls = make([]segmentSize, buffers)
	r.names = make([]sockaddr, buffers)
	r.buffers = make([]byte, buffers*r.stride)
	iovs := make([]unix.Iovec, buffers)
	for i := range iovs {
		iovs[i].Base = &r.buffers[i*r.stride]
		iovs[i].SetLen(length)
		r.messages[i].content(iovs[i : i+1])
		r.messages[i].address(&r.names[i])
	}
}

// pending reports whether receive has more to hand out without the kernel.
func (r *udpReceiver) pending() bool { return r.next < r.got }

// receive stores payloads in frames and notes in delivered where they came from. It
// asks the kernel once all that the kernel delivered before is handed out.
func (r *udpReceiver) receive(fd int, frames []Frame) int {
	frames = frames[:min(len(frames), batch-r.held)]
	if len(frames) == 0 || !r.pending() && !r.fetch(fd, len(frames)) {
		return 0
	}
	n, bytes, malformed := 0, 0, 0
	for n < len(frames) && r.pending() {
		m := &r.messages[r.next]
		length := min(m.segment(&r.controls[r.next]), int(m.length)-r.offset)
		at := r.next*r.stride + r.offset
		if length > r.longest || m.header.Flags&unix.MSG_TRUNC != 0 {
			malformed++
		} else {
			frames[n] = Frame{Payload: r.buffers[at : at+length : at+length], Path: NoPath}
			r.delivered[n] = r.next
			bytes += length
			n++
		}
		if r.offset += length; r.offset == int(m.length) {
			r.next, r.offset = r.next+1, 0
		}
	}
	r.held += n
	r.frames.Add(uint64(n))
	r.bytes.Add(uint64(bytes))
	if malformed > 0 {
		r.malformed.Add(uint64(malformed))
	}
	if r.held == 0 {
		r.release() // a driver that got nothing has nothing to release
	}
	return n
}

// fetch has the kernel fill at most n buffers, and reports whether it filled any.
func (r *udpReceiver) fetch(fd, n int) bool {
	to := min(r.got+n, len(r.messages))
	if to == r.got {
		return false
	}
	for i := r.got; i < to; i++ {
		r.messages[i].expect(&r.controls[i])
	}
	// An error means: nothing there, a signal, an ICMP error of an earlier send, or no
	// memory just now. The caller comes again in any case.
	got, errno := receiveMessages(fd, r.messages[r.got:to])
	if errno != 0 {
		return false
	}
	r.got += got
	return got > 0
}

// release takes the payloads back that are with the caller.
func (r *udpReceiver) release() {
	if r.held = 0; !r.pending() {
		r.got, r.next = 0, 0
	}
}

func (r *udpReceiver) addStats(s *stats.Device) {
	s.RxFrames += r.frames.Load()
	s.RxBytes += r.bytes.Load()
	s.RxMalformed += r.malformed.Load()
}
