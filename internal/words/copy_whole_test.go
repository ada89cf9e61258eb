//go:build !race

package words

import (
	"math/rand/v2"
	"sync"
	"testing"
)

// TestCopiesAreWhole has one goroutine put patterns of equal bytes into a window
// while another gets the same bytes: every aligned element that both cover must
// be of one pattern. It is a data race by design, as put and get of the same
// memory are, hence not for the race detector.
func TestCopiesAreWhole(t *testing.T) {
	const rounds = 4000
	r := rand.New(rand.NewPCG(7, 8))
	for _, n := range []int{2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 24, 31, 40, 63, 72, 100, 136, 200, 300, 1000} {
		for range 4 {
			offset, skew := r.IntN(8), r.IntN(16)
			mem := aligned(n + offset)
			var wg sync.WaitGroup
			wg.Go(func() {
				src := make([]byte, n+skew)[skew:]
				for i := range rounds {
					for j := range src {
						src[j] = byte(i)
					}
					CopyIn(mem[offset:], src)
				}
			})
			dst := make([]byte, n+skew)[skew:]
			for range rounds {
				CopyOut(dst, mem[offset:])
				if at, size := torn(dst, offset); at >= 0 {
					t.Errorf("copy of %d bytes at %d: element of %d bytes at %d is torn: % x", n, offset, size, at, dst[at:at+size])
					break
				}
			}
			wg.Wait()
		}
	}
}

// TestOverlappingCopiesAreWhole is TestCopiesAreWhole for copies from the end on: a goroutine
// puts patterns into a window, and over themselves further on, where another looks.
func TestOverlappingCopiesAreWhole(t *testing.T) {
	const rounds = 4000
	r := rand.New(rand.NewPCG(7, 8))
	for _, end := range []int{8, 16, 24, 64, 72, 128, 200, 304, 1000} {
		for range 4 {
			offset := r.IntN(8)
			shift := 1 + r.IntN(end-offset-1)
			mem := aligned(end + shift)
			var wg sync.WaitGroup
			wg.Go(func() {
				pattern := make([]byte, end-offset)
				for i := range rounds {
					for j := range pattern {
						pattern[j] = byte(i)
					}
					CopyIn(mem[offset:], pattern)
					CopyIn(mem[offset+shift:], mem[offset:end])
				}
			})
			dst := make([]byte, end-offset)
			for range rounds {
				CopyOut(dst, mem[offset+shift:])
				if at, size := torn(dst, offset+shift); at >= 0 {
					t.Errorf("copy of %d bytes from %d to %d: element of %d bytes at %d is torn: % x", end-offset, offset, offset+shift, size, at, dst[at:at+size])
					break
				}
			}
			wg.Wait()
		}
	}
}

// torn finds an aligned element of unequal bytes in b, a copy of window memory
// from offset on; at is -1 if there is none.
func torn(b []byte, offset int) (at, size int) {
	for _, size := range []int{2, 4, 8} {
		for at := -offset & (size - 1); at+size <= len(b); at += size {
			for _, v := range b[at : at+size] {
				if v != b[at] {
					return at, size
				}
			}
		}
	}
	return -1, 0
}
