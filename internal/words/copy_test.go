package words

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// aligned returns n bytes that start at a multiple of 8.
func aligned(n int) []byte {
	mem := make([]byte, n+7)
	return mem[-Address(mem)&7:][:n]
}

func fillRandom(r *rand.Rand, mem []byte) {
	for i := range mem {
		mem[i] = byte(r.Uint32())
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
			fillRandom(r, src)
			mem := aligned(n + 32)
			fillRandom(r, mem)
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
