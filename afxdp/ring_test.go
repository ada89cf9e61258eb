package afxdp

import (
	"testing"

	"pgregory.net/rapid"
)

// The rings behave as a queue, whatever the start index and the interleaving.
func TestRingsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := uint32(1) << rapid.IntRange(0, 5).Draw(t, "log size")
		start := rapid.OneOf(rapid.Uint32(), rapid.Uint32Range(nearWrap-64, nearWrap+5)).Draw(t, "start")
		down, up := heapRing[uint64](size, start), heapRing[uint64](size, start)
		ours := producer[uint64]{shared: down, next: start}
		kernelIn := &fakeConsumer[uint64]{shared: down, next: start}
		kernelOut := &fakeProducer[uint64]{shared: up, next: start}
		back := consumer[uint64]{shared: up, next: start, known: start}

		var unpublished, below, above []uint64
		var serial uint64
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0: // put
				if uint32(len(unpublished)+len(below)) < size {
					serial++
					ours.put(serial)
					unpublished = append(unpublished, serial)
				}
			case 1:
				ours.publish()
				below, unpublished = append(below, unpublished...), nil
			case 2: // the kernel consumes
				v, ok := kernelIn.take()
				if ok != (len(below) > 0) || ok && v != below[0] {
					t.Fatalf("kernel took %d, %v; model %v", v, ok, below)
				}
				if ok {
					below = below[1:]
				}
			case 3: // the kernel produces
				serial++
				if kernelOut.give(serial) {
					above = append(above, serial)
				}
			case 4: // a batch
				n := back.available()
				if int(n) > len(above) || n == 0 && len(above) > 0 {
					t.Fatalf("%d available, model has %d", n, len(above))
				}
				for range rapid.Uint32Range(0, n).Draw(t, "batch") {
					if v := back.get(); v != above[0] {
						t.Fatalf("got %d, want %d", v, above[0])
					}
					above = above[1:]
				}
				back.release()
			}
		}
	})
}

func TestConsumerIgnoresImpossibleIndex(t *testing.T) {
	r := heapRing[uint64](8, nearWrap)
	c := consumer[uint64]{shared: r, next: nearWrap, known: nearWrap}
	*r.producer += 9
	if n := c.available(); n != 0 {
		t.Errorf("%d entries available of a ring of 8 that claims 9", n)
	}
}
