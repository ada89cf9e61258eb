package afxdp

import (
	"fmt"
	"sync/atomic"
)

// MaxLinear is the largest number of frames spread over several chunks that
// Receive delivers before the next Release.
const MaxLinear = 64

// owner says who has a receive chunk.
type owner uint8

const (
	withKernel owner = iota // in the fill ring, or taken from it
	withCaller              // received and not released
)

// receiver is the receive side of a socket.
type receiver struct {
	fill  producer[uint64]
	rx    consumer[desc]
	mem   []byte // the whole UMEM
	base  uint64 // address of the first receive chunk
	shift uint   // log2 of the chunk size
	state []owner
	held  []uint32 // chunks with the caller, by index
	asm   assembler

	frames, bytes, invalid, oversize atomic.Uint64
}

func newReceiver(fill shared[uint64], rx shared[desc], mem []byte, c *Config, area int) *receiver {
	r := &receiver{
		mem:   mem,
		base:  uint64(c.TxChunks+area*c.RxChunks) * uint64(c.ChunkSize),
		shift: chunkShift(c.ChunkSize),
		state: make([]owner, c.RxChunks),
		held:  make([]uint32, 0, c.RxChunks),
	}
	r.fill = producer[uint64]{shared: fill, next: atomic.LoadUint32(fill.producer)}
	r.rx = consumer[desc]{shared: rx, next: atomic.LoadUint32(rx.consumer)}
	r.rx.known = r.rx.next
	if c.MultiBuffer {
		r.asm = newAssembler(c.MaxFrame)
	} else {
		r.asm = newAssembler(0)
	}
	for i := range r.state {
		r.fill.put(r.base + uint64(i)<<r.shift)
	}
	r.fill.publish()
	return r
}

// receive implements Socket.Receive.
func (r *receiver) receive(frames [][]byte) int {
	avail := r.rx.available()
	if avail == 0 {
		return 0
	}
	n, bytes := 0, 0
	for ; avail > 0 && n < len(frames) && r.asm.used < len(r.asm.linear); avail-- {
		d := r.rx.get()
		more := d.options&contd != 0
		data := r.take(d)
		if data == nil {
			r.asm.abandon(more)
			continue
		}
		if more || r.asm.active {
			if data = r.join(data, more); data == nil {
				continue
			}
		}
		frames[n] = data
		bytes += len(data)
		n++
	}
	r.rx.release()
	if n > 0 {
		r.frames.Add(uint64(n))
		r.bytes.Add(uint64(bytes))
	}
	return n
}

// take makes the chunk of d the caller's and returns the bytes in it, or nil
// if d is not what a kernel should deliver.
func (r *receiver) take(d desc) []byte {
	i := (d.addr - r.base) >> r.shift
	end := d.addr + uint64(d.length)
	if i >= uint64(len(r.state)) || end > r.base+(i+1)<<r.shift || r.state[i] != withKernel {
		r.invalid.Add(1)
		return nil
	}
	r.state[i] = withCaller
	r.held = append(r.held, uint32(i)) // within capacity: each chunk is held once
	return r.mem[d.addr:end:end]
}

// join adds a segment to the frame being assembled and returns the frame once
// it is whole.
func (r *receiver) join(segment []byte, more bool) []byte {
	r.asm.add(segment)
	if more {
		return nil
	}
	frame := r.asm.finish()
	if frame == nil {
		r.oversize.Add(1)
	}
	return frame
}

// releaseHeld implements Socket.Release.
func (r *receiver) releaseHeld() {
	if len(r.held) == 0 {
		return
	}
	for _, i := range r.held {
		if r.state[i] != withCaller {
			panic(fmt.Sprintf("afxdp: receive chunk %d released twice", i))
		}
		r.state[i] = withKernel
		r.fill.put(r.base + uint64(i)<<r.shift)
	}
	r.fill.publish()
	r.held = r.held[:0]
	r.asm.used = 0
}

// assembler joins the segments of frames that span chunks. Each segment is
// copied when it arrives, so its chunk goes back with the next Release even if
// the rest of the frame comes later.
type assembler struct {
	linear  [][]byte // buffers; linear[:used] are with the caller
	used    int
	partial []byte // the frame being joined; changes places with one of linear when whole
	active  bool   // the next segment continues a frame
	skip    bool   // that frame is too long or damaged
}

// newAssembler allocates the buffers; maxFrame 0 makes one whose buffers hold
// nothing, so that every chain is skipped.
func newAssembler(maxFrame int) assembler {
	if maxFrame == 0 {
		return assembler{linear: make([][]byte, 1)}
	}
	stride := (maxFrame + 63) &^ 63
	slab := make([]byte, stride*(MaxLinear+1))
	cut := func(i int) []byte { return slab[i*stride : i*stride : i*stride+maxFrame] }
	a := assembler{linear: make([][]byte, MaxLinear), partial: cut(MaxLinear)}
	for i := range a.linear {
		a.linear[i] = cut(i)
	}
	return a
}

// add appends one segment.
func (a *assembler) add(segment []byte) {
	a.active = true
	if a.skip = a.skip || len(a.partial)+len(segment) > cap(a.partial); !a.skip {
		a.partial = append(a.partial, segment...)
	}
}

// finish ends the frame and returns it, or nil if it was skipped.
func (a *assembler) finish() []byte {
	if a.skip {
		a.abandon(false)
		return nil
	}
	frame := a.partial
	a.partial = a.linear[a.used][:0]
	a.linear[a.used] = frame
	a.used++
	a.active = false
	return frame
}

// abandon gives up the frame being joined, of which more is to come or not.
func (a *assembler) abandon(more bool) {
	a.active, a.skip = more, more
	a.partial = a.partial[:0]
}
