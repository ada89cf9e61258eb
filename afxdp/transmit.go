package afxdp

import (
	"fmt"
	"math/bits"
	"sync/atomic"
)

// MaxSegments is the largest number of chunks that a sent frame may touch with
// MultiBuffer: what a kernel with its default number of fragments takes from
// every kind of interface in copy mode.
const MaxSegments = 17

// minFrame is an Ethernet header.
const minFrame = 14

// txChunk is the state of one transmit chunk. It is in flight while frame is
// not 0.
type txChunk struct {
	offset uint64 // of the frame, kept at its first chunk
	frame  uint32 // index of the frame's first chunk, plus 1
	left   uint32 // descriptors of the frame not yet completed, kept at its first chunk
}

// transmitter is the transmit side of a socket.
type transmitter struct {
	tx          producer[desc]
	completion  consumer[uint64]
	area        []byte
	shift       uint // log2 of the chunk size
	maxSegments uint64
	chunks      []txChunk
	queuedBytes uint64 // since the last publish
	queued      uint64 // frames since the last publish

	completed atomic.Uint32 // ring index up to which descriptors have completed, for Kick

	frames, bytes, done, invalid atomic.Uint64
}

func newTransmitter(tx shared[desc], completion shared[uint64], mem []byte, c *Config) *transmitter {
	size := c.TxChunks * c.ChunkSize
	t := &transmitter{
		area:        mem[:size:size],
		shift:       chunkShift(c.ChunkSize),
		maxSegments: 1,
		chunks:      make([]txChunk, c.TxChunks),
	}
	if c.MultiBuffer {
		t.maxSegments = MaxSegments
	}
	t.tx = producer[desc]{shared: tx, next: atomic.LoadUint32(tx.producer)}
	t.completion = consumer[uint64]{shared: completion, next: atomic.LoadUint32(completion.consumer)}
	t.completion.known = t.completion.next
	t.completed.Store(t.tx.next)
	return t
}

// enqueue implements Socket.Enqueue.
func (t *transmitter) enqueue(offset uint64, length int) bool {
	if size := uint64(len(t.area)); length < minFrame || offset > size || uint64(length) > size-offset {
		panic(fmt.Sprintf("afxdp: a frame of %d bytes at %d is too short or not inside the transmit area of %d", length, offset, len(t.area)))
	}
	first := offset >> t.shift
	n := (offset+uint64(length)-1)>>t.shift - first + 1
	if n > t.maxSegments {
		panic(fmt.Sprintf("afxdp: a frame of %d bytes at %d touches %d chunks, more than the limit of %d", length, offset, n, t.maxSegments))
	}
	// Frames that have not completed may still occupy the ring. They need room in the
	// completion ring, which is no smaller.
	if t.tx.next-t.completed.Load()+uint32(n) > t.tx.size() {
		return false
	}
	t.own(first, n, offset)
	for rest := uint64(length); ; {
		part := min(rest, (offset>>t.shift+1)<<t.shift-offset)
		rest -= part
		if rest == 0 {
			t.tx.put(desc{addr: offset, length: uint32(part)})
			break
		}
		t.tx.put(desc{addr: offset, length: uint32(part), options: contd})
		offset += part
	}
	t.queued++
	t.queuedBytes += uint64(length)
	return true
}

// own marks n chunks from first as in flight for the frame at offset.
func (t *transmitter) own(first, n, offset uint64) {
	for i := first; i < first+n; i++ {
		if t.chunks[i].frame != 0 {
			panic(fmt.Sprintf("afxdp: transmit chunk %d enqueued again before it was reaped", i))
		}
		t.chunks[i].frame = uint32(first) + 1
	}
	t.chunks[first].offset = offset
	t.chunks[first].left = uint32(n)
}

// publish implements Socket.Publish.
func (t *transmitter) publish() {
	if t.queued == 0 {
		return
	}
	t.tx.publish()
	t.frames.Add(t.queued)
	t.bytes.Add(t.queuedBytes)
	t.queued, t.queuedBytes = 0, 0
}

// published returns the ring index up to which descriptors have been published. Anyone may call it.
func (t *transmitter) published() uint32 { return atomic.LoadUint32(t.tx.producer) }

// reap implements Socket.Reap.
func (t *transmitter) reap(offsets []uint64) int {
	avail := t.completion.available()
	if avail == 0 {
		return 0
	}
	n, completed := 0, uint32(0)
	for ; avail > 0 && n < len(offsets); avail-- {
		i := t.completion.get() >> t.shift
		if i >= uint64(len(t.chunks)) || t.chunks[i].frame == 0 {
			t.invalid.Add(1)
			continue
		}
		completed++
		first := &t.chunks[t.chunks[i].frame-1]
		t.chunks[i].frame = 0
		if first.left--; first.left == 0 {
			offsets[n] = first.offset
			n++
		}
	}
	t.completion.release()
	t.completed.Store(t.completed.Load() + completed)
	if n > 0 {
		t.done.Add(uint64(n))
	}
	return n
}

func chunkShift(size int) uint { return uint(bits.TrailingZeros(uint(size))) }
