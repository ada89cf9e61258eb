package elements

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/words"
)

// TestSumIsAtomic has goroutines add to every element of an array, and the sums
// must be exact: no update is lost, not even between neighbours in one word.
func TestSumIsAtomic(t *testing.T) {
	const workers, rounds, elements = 4, 300, 7
	for b := datatype.Basic(1); b < basicCount; b++ {
		if datatype.Sum.Check(b) != 0 {
			continue
		}
		size := b.Size()
		mem := aligned(elements*size + 8)
		one := encodeOne(b)
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				result := make([]byte, size)
				for i := range rounds {
					at := (i + w) % elements * size
					if i%2 == 0 {
						Accumulate(datatype.Sum, b, mem[at:at+size], one)
					} else {
						GetAccumulate(datatype.Sum, b, mem[at:at+size], one, result)
					}
				}
			})
		}
		wg.Wait()
		want := make([]byte, size)
		counts := [elements]int{}
		for w := range workers {
			for i := range rounds {
				counts[(i+w)%elements]++
			}
		}
		for e, n := range counts {
			clear(want)
			for range n {
				copy(want, reference(datatype.Sum, b, want, one))
			}
			if got := mem[e*size : (e+1)*size]; string(got) != string(want) {
				t.Errorf("%s element %d: % x, want % x", b, e, got, want)
			}
		}
	}
}

func encodeOne(b datatype.Basic) []byte {
	switch b {
	case datatype.BasicFloat32:
		return encode(float32(1))
	case datatype.BasicFloat64:
		return encode(float64(1))
	case datatype.BasicComplex64:
		return encode(complex64(1 + 2i))
	case datatype.BasicComplex128:
		return encode(1 + 2i)
	}
	one := make([]byte, b.Size())
	one[0] = 1
	return one
}

// TestNarrowNeighbours has each goroutine work on its own byte of one word.
func TestNarrowNeighbours(t *testing.T) {
	mem := aligned(8)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			one := []byte{1}
			result, next := []byte{0}, []byte{0}
			for n := range 500 {
				if i%2 == 0 {
					Accumulate(datatype.Sum, datatype.BasicUint8, mem[i:i+1], one)
					continue
				}
				next[0] = byte(n + 1)
				CompareAndSwap(datatype.BasicUint8, mem[i:i+1], []byte{byte(n)}, next, result)
			}
		})
	}
	wg.Wait()
	for i := range mem {
		if mem[i] != byte(500%256) {
			t.Errorf("byte %d is %d, want %d", i, mem[i], 500%256)
		}
	}
}

// TestMixesWithSyncAtomic has the owner of a window add with sync/atomic.
func TestMixesWithSyncAtomic(t *testing.T) {
	mem := aligned(8)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 2000 {
			atomic.AddUint64(words.Word64(mem, 0), 3)
		}
	})
	wg.Go(func() {
		operand := encode(uint64(5))
		for range 2000 {
			Accumulate(datatype.Sum, datatype.BasicUint64, mem, operand)
		}
	})
	wg.Wait()
	if got := decode[uint64](mem); got != 16000 {
		t.Errorf("sum is %d, want 16000", got)
	}
}

// TestCompareAndSwapLock uses a byte as a spin lock over an ordinary counter.
func TestCompareAndSwapLock(t *testing.T) {
	for _, b := range []datatype.Basic{datatype.BasicUint8, datatype.BasicUint16, datatype.BasicUint32, datatype.BasicUint64} {
		size := b.Size()
		mem := aligned(16)
		counter := 0
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				free, taken, result := make([]byte, size), encodeOne(b), make([]byte, size)
				for range 200 {
					for {
						if CompareAndSwap(b, mem[8:8+size], free, taken, result); string(result) == string(free) {
							break
						}
					}
					counter++
					Accumulate(datatype.Replace, b, mem[8:8+size], free)
				}
			})
		}
		wg.Wait()
		if counter != 600 {
			t.Errorf("%s: counted %d, want 600", b, counter)
		}
	}
}
