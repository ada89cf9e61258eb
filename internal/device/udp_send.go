package device

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xdprma/xdprma/stats"
	"golang.org/x/sys/unix"
)

// udpSender is the transmit side of a UDP device. A slot goes from Enqueue into
// waiting, from there into the batch of the goroutine that sends, and then into
// done until Reap.
type udpSender struct {
	slab    *Slab
	waiting atomic.Int32 // frames enqueued and not sent
	busy    atomic.Bool  // a goroutine sends; messages, iovs and sending are its own
	full    atomic.Bool  // the socket's buffer had no room when last asked
	since   time.Time    // of whoever is busy: when it began to be full; zero: it is not

	mu    sync.Mutex // guards the rest; never held across a system call
	queue ring[Out]
	done  ring[int32]
	owned int // slots between Enqueue and Reap

	messages []mmsghdr
	controls []segmentSize
	iovs     []unix.Iovec // one a frame
	sending  []Out        // the batch; what the socket had no room for stays in it

	frames, bytes, dropped, errors atomic.Uint64
	refused                        atomic.Uint64 // messages

	log *slog.Logger
}

// sendBatch is how many frames one system call sends.
const sendBatch = 256

func (t *udpSender) init(slab *Slab, log *slog.Logger) {
	t.slab, t.log = slab, log
	t.queue = newRing[Out](slab.Slots)
	t.done = newRing[int32](slab.Slots)
	t.messages = make([]mmsghdr, sendBatch)
	t.controls = make([]segmentSize, sendBatch)
	t.iovs = make([]unix.Iovec, sendBatch)
	t.sending = make([]Out, 0, sendBatch)
}

// enqueue implements Device.Enqueue.
func (t *udpSender) enqueue(outs []Out) int {
	t.mu.Lock()
	n := min(len(outs), t.slab.Slots-t.owned)
	for _, out := range outs[:n] {
		checkOut(t.slab, out)
		t.queue.put(out)
	}
	t.owned += n
	t.waiting.Add(int32(n))
	t.mu.Unlock()
	return n
}

// checkOut panics if out is not a frame in a slot of slab.
func checkOut(slab *Slab, out Out) {
	if uint(out.Slot) >= uint(slab.Slots) || out.Len < 1 || int(out.Len) > slab.MaxPayload {
		panic(fmt.Sprintf("device: a frame of %d bytes in slot %d; there are %d slots of %d", out.Len, out.Slot, slab.Slots, slab.MaxPayload))
	}
}

// reap implements Device.Reap.
func (t *udpSender) reap(slots []int32) int {
	t.mu.Lock()
	n := min(len(slots), t.done.n)
	for i := range slots[:n] {
		slots[i] = t.done.get()
	}
	t.owned -= n
	t.mu.Unlock()
	return n
}

// transmit implements Device.Transmit. It reports whether the socket's buffer has
// turned out to be full, which a sleeper could not know.
func (t *udpSender) transmit(fd int, paths *pathTable[sockaddr]) (filled bool) {
	// A goroutine that finds another one sending relies on that one's next look
	// at waiting.
	for rounds := 2 * t.slab.Slots; t.waiting.Load() > 0 && rounds > 0; rounds-- {
		if !t.busy.CompareAndSwap(false, true) {
			return false
		}
		progress := t.sendBatch(fd, paths)
		before := t.full.Swap(!progress)
		t.busy.Store(false)
		if !progress {
			return !before
		}
	}
	return false
}

// sendBatch makes one system call and reports whether another one is worth it.
func (t *udpSender) sendBatch(fd int, paths *pathTable[sockaddr]) bool {
	t.fill()
	if len(t.sending) == 0 {
		return true // another goroutine was faster; see whether more has come since
	}
	messages := t.compose(paths)
	sent, errno := sendMessages(fd, t.messages[:messages])
	if errno == 0 {
		t.since = time.Time{}
		n := 0
		for i := range sent {
			n += int(t.messages[i].header.Iovlen)
		}
		t.account(n)
		t.finish(n)
		return true
	}
	t.errors.Add(1)
	switch errno {
	case unix.EAGAIN:
		return t.stuck() // no room in the socket's buffer; the batch stays
	case unix.EINTR, unix.ECONNREFUSED: // the latter answers an earlier frame, and is told once
		return true
	}
	// The first message of the batch cannot be sent: it is too long for the path
	// (EMSGSIZE), a firewall forbids it, there is no route or no memory; or the kernel does
	// not cut messages on this path (EIO, EINVAL), as over an interface without checksums,
	// or IPsec. To the protocol these are lost frames, which it repeats if it must, each by
	// itself.
	frames := int(t.messages[0].header.Iovlen)
	if n := t.refused.Add(1); n&(n-1) == 0 { // not once a message, but each time their number has doubled
		level := slog.LevelWarn
		if frames > 1 {
			level = slog.LevelInfo
		}
		t.log.Log(context.Background(), level, "the kernel refuses frames, which look lost to the peer; joined ones will go one by one, which is slower",
			"to", paths.get(t.sending[0].Path).addr(), "bytes", t.sending[0].Len, "joined", frames, "error", errno, "refused", n)
	}
	t.dropped.Add(uint64(frames))
	t.finish(frames)
	return true
}

// stuckAfter is how long the socket's buffer may be full before what waits for it is lost.
const stuckAfter = 200 * time.Millisecond

// stuck takes in that the socket's buffer is full. When it has been for long, the frames of the
// batch count as lost, and it reports true: what they carry may go another way.
func (t *udpSender) stuck() bool {
	now := time.Now()
	if t.since.IsZero() {
		t.since = now
	}
	if now.Sub(t.since) < stuckAfter {
		return false
	}
	t.dropped.Add(uint64(len(t.sending)))
	t.finish(len(t.sending))
	return true
}

// compose makes messages of the batch and returns how many.
func (t *udpSender) compose(paths *pathTable[sockaddr]) (messages int) {
	for i := 0; i < len(t.sending); messages++ {
		first, n := t.sending[i], together(t.sending[i:])
		for j, out := range t.sending[i : i+n] {
			t.iovs[i+j].Base = &t.slab.Payload(out.Slot)[0]
			t.iovs[i+j].SetLen(int(out.Len))
		}
		m := &t.messages[messages]
		m.content(t.iovs[i : i+n])
		m.address(paths.get(first.Path))
		if n > 1 {
			m.cut(&t.controls[messages], int(first.Len))
		} else {
			m.whole()
		}
		i += n
	}
	return messages
}

// together returns how many frames at the start of batch, which is not empty, are one
// message: the link has said so, and nothing but the end of the batch has come between.
func together(batch []Out) int {
	n := 1
	for n < len(batch) && batch[n-1].More && batch[n].Path == batch[0].Path {
		n++
	}
	return n
}

// fill tops the batch up from the queue.
func (t *udpSender) fill() {
	t.mu.Lock()
	for len(t.sending) < sendBatch && t.queue.n > 0 {
		t.sending = append(t.sending, t.queue.get())
	}
	t.mu.Unlock()
}

func (t *udpSender) account(n int) {
	bytes := uint64(0)
	for _, out := range t.sending[:n] {
		bytes += uint64(out.Len)
	}
	t.frames.Add(uint64(n))
	t.bytes.Add(bytes)
}

// finish makes the slots of the batch's first n frames reapable.
func (t *udpSender) finish(n int) {
	t.mu.Lock()
	for _, out := range t.sending[:n] {
		t.done.put(out.Slot)
	}
	t.mu.Unlock()
	t.waiting.Add(int32(-n))
	t.sending = t.sending[:copy(t.sending, t.sending[n:])]
}

func (t *udpSender) addStats(s *stats.Device) {
	s.TxFrames += t.frames.Load()
	s.TxBytes += t.bytes.Load()
	s.TxDropped += t.dropped.Load()
	s.TxErrors += t.errors.Load()
}

// ring is a queue of fixed capacity whose users see to it that it never overflows.
type ring[T any] struct {
	items []T
	head  int
	n     int
}

func newRing[T any](capacity int) ring[T] { return ring[T]{items: make([]T, capacity)} }

func (r *ring[T]) put(v T) {
	r.items[(r.head+r.n)%len(r.items)] = v
	r.n++
}

func (r *ring[T]) get() T {
	v := r.items[r.head]
	r.head = (r.head + 1) % len(r.items)
	r.n--
	return v
}
