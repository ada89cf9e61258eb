package datatype

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

// TestSumIsAtomic has goroutines add to every element of an array, and the sums
// must be exact: no update is lost, not even between neighbours in one word.
func TestSumIsAtomic(t *testing.T) {
	const workers, rounds, elements = 4, 300, 7
	for b := Basic(1); b < basicCount; b++ {
		if Sum.Check(b) != 0 {
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
						Accumulate(Sum, b, mem[at:at+size], one)
					} else {
						GetAccumulate(Sum, b, mem[at:at+size], one, result)
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
				copy(want, reference(Sum, b, want, one))
			}
			if got := mem[e*size : (e+1)*size]; string(got) != string(want) {
				t.Errorf("%s element %d: % x, want % x", b, e, got, want)
			}
		}
	}
}

func encodeOne(b Basic) []byte {
	switch b {
	case BasicFloat32:
		return encode(float32(1))
	case BasicFloat64:
		return encode(float64(1))
	case BasicComplex64:
		return encode(complex64(1 + 2i))
	case BasicComplex128:
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
					Accumulate(Sum, BasicUint8, mem[i:i+1], one)
					continue
				}
				next[0] = byte(n + 1)
				CompareAndSwap(BasicUint8, mem[i:i+1], []byte{byte(n)}, next, result)
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
			atomic.AddUint64(word64(mem, 0), 3)
		}
	})
	wg.Go(func() {
		operand := encode(uint64(5))
		for range 2000 {
			Accumulate(Sum, BasicUint64, mem, operand)
		}
	})
	wg.Wait()
	if got := decode[uint64](mem); got != 16000 {
		t.Errorf("sum is %d, want 16000", got)
	}
}

// TestCompareAndSwapLock uses a byte as a spin lock over an ordinary counter.
func TestCompareAndSwapLock(t *testing.T) {
	for _, b := range []Basic{BasicUint8, BasicUint16, BasicUint32, BasicUint64} {
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
					Accumulate(Replace, b, mem[8:8+size], free)
				}
			})
		}
		wg.Wait()
		if counter != 600 {
			t.Errorf("%s: counted %d, want 600", b, counter)
		}
	}
}

func TestCopiesEveryLengthAndAlignment(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for n := range 300 {
		if n > 150 {
			n *= 37
		}
		for offset := range 9 {
			src := make([]byte, n)
			fill(r, BasicUint8, src)
			mem := aligned(n + 32)
			fill(r, BasicUint8, mem)
			before := string(mem)
			CopyIn(mem[offset:], src)
			if want := before[:offset] + string(src) + before[offset+n:]; string(mem) != want {
				t.Fatalf("copy in of %d bytes at %d is wrong", n, offset)
			}
			dst := make([]byte, n+1)[1:]
			CopyOut(dst, mem[offset:])
			if string(dst) != string(src) {
				t.Fatalf("copy out of %d bytes at %d is wrong", n, offset)
			}
		}
	}
}

// TestEndsOfACopyAreCutIntoAlignedElements checks that the ends of a copy are cut into aligned elements, the
// largest that fit.
func TestEndsOfACopyAreCutIntoAlignedElements(t *testing.T) {
	for at := range uintptr(16) {
		for left := 1; left < 16; left++ {
			size := piece(at, left)
			if size > left || at%uintptr(size) != 0 {
				t.Errorf("piece at %d of %d bytes is %d long", at, left, size)
			}
			if double := size * 2; double <= 4 && double <= left && at%uintptr(double) == 0 {
				t.Errorf("piece at %d of %d bytes is only %d long", at, left, size)
			}
		}
	}
}

func BenchmarkCopyIn(b *testing.B) {
	for _, n := range []int{8, 16, 64, 65, 128, 1400, 65536} {
		mem, src := aligned(n+8), make([]byte, n+2)[2:]
		for _, at := range []int{0, 4} {
			b.Run(fmt.Sprint(n, "at", at), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					CopyIn(mem[at:], src)
				}
			})
		}
	}
}
