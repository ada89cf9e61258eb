package afxdp

import (
	"math"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// fakeKernel plays the kernel's side of a socket's rings on the heap.
type fakeKernel struct {
	t      testing.TB
	config Config
	mem    []byte

	fill       *fakeConsumer[uint64]
	tx         *fakeConsumer[desc]
	rx         *fakeProducer[desc]
	completion *fakeProducer[uint64]
}

type fakeConsumer[T uint64 | desc] struct {
	shared[T]
	next uint32
}

func (c *fakeConsumer[T]) take() (v T, ok bool) {
	if atomic.LoadUint32(c.producer) == c.next {
		return v, false
	}
	v = c.entries[c.next%c.size()]
	c.next++
	atomic.StoreUint32(c.consumer, c.next)
	return v, true
}

type fakeProducer[T uint64 | desc] struct {
	shared[T]
	next uint32
}

func (p *fakeProducer[T]) give(v T) bool {
	if p.next-atomic.LoadUint32(p.consumer) == p.size() {
		return false
	}
	p.entries[p.next%p.size()] = v
	p.next++
	atomic.StoreUint32(p.producer, p.next)
	return true
}

func heapRing[T uint64 | desc](size, start uint32) shared[T] {
	producer, consumer := start, start
	return shared[T]{producer: &producer, consumer: &consumer, flags: new(uint32), entries: make([]T, size)}
}

// nearWrap is a start index from which 2^32 is soon reached.
const nearWrap = math.MaxUint32 - 5

// newFake returns a socket whose kernel is fake and whose ring indices start at start.
func newFake(t testing.TB, c Config, start uint32) (*Socket, *fakeKernel) {
	t.Helper()
	c.IfIndex = 1
	c, err := c.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	k := &fakeKernel{t: t, config: c, mem: make([]byte, c.umemSize())}
	k.fill = &fakeConsumer[uint64]{shared: heapRing[uint64](c.FillSize, start), next: start}
	k.tx = &fakeConsumer[desc]{shared: heapRing[desc](c.TxSize, start), next: start}
	k.rx = &fakeProducer[desc]{shared: heapRing[desc](c.RxSize, start), next: start}
	k.completion = &fakeProducer[uint64]{shared: heapRing[uint64](c.CompletionSize, start), next: start}
	s := &Socket{fd: -1, umem: nil}
	s.rx = newReceiver(k.fill.shared, k.rx.shared, k.mem, &c, 0)
	s.tx = newTransmitter(k.tx.shared, k.completion.shared, k.mem, &c)
	s.kick = newKicker(s.tx, false, -1)
	s.kick.fake = func() unix.Errno { return 0 }
	return s, k
}

// deliver receives one frame as the kernel would: into chunks of the fill ring,
// behind headroom, in segments of at most segment bytes. It reports whether
// there were enough chunks.
func (k *fakeKernel) deliver(frame []byte, segment int) bool {
	for {
		addr, ok := k.fill.take()
		if !ok {
			return false
		}
		n := min(segment, len(frame))
		d := desc{addr: addr + 256, length: uint32(n)}
		copy(k.mem[d.addr:], frame[:n])
		frame = frame[n:]
		if len(frame) > 0 {
			d.options = contd
		}
		if !k.rx.give(d) {
			k.t.Fatal("receive ring is full")
		}
		if len(frame) == 0 {
			return true
		}
	}
}

// transmit takes one frame out of the transmit ring and returns its bytes and
// the addresses to complete.
func (k *fakeKernel) transmit() (frame []byte, addrs []uint64) {
	for {
		d, ok := k.tx.take()
		if !ok {
			if len(addrs) > 0 {
				k.t.Fatal("frame without an end in the transmit ring")
			}
			return nil, nil
		}
		size := uint64(k.config.ChunkSize)
		if d.length == 0 || d.addr/size != (d.addr+uint64(d.length)-1)/size {
			k.t.Fatalf("descriptor %+v is empty or crosses a chunk", d)
		}
		frame = append(frame, k.mem[d.addr:d.addr+uint64(d.length)]...)
		addrs = append(addrs, d.addr)
		if d.options&contd == 0 {
			return frame, addrs
		}
	}
}

func mustPanic(t *testing.T, why string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if recover() == nil {
			t.Errorf("no panic: %s", why)
		}
	}()
	f()
}
