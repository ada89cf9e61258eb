package words

import (
	"bytes"
	"slices"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// TestOverlappingCopies compares copies within one memory, in both directions and at all
// alignments, with Go's copy.
func TestOverlappingCopies(t *testing.T) {
	lengths := []int{1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 63, 64, 65, 72, 100, 127, 128, 129, 136, 200, 256, 257, 300, 1000}
	shifts := []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 31, 64, 65, 127, 128, 129, 200, 999}
	for name, move := range map[string]func(dst, src []byte){"CopyIn": CopyIn, "CopyOut": CopyOut} {
		for _, n := range lengths {
			for _, shift := range shifts {
				for offset := range 8 {
					for _, up := range []bool{false, true} {
						from, to := offset, offset+shift
						if !up {
							from, to = to, from
						}
						mem := aligned(offset + shift + n + 8)
						testenv.Fill(mem, uint32(n))
						want := slices.Clone(mem)
						copy(want[to:to+n], want[from:from+n])
						move(mem[to:to+n], mem[from:from+n])
						if !bytes.Equal(mem, want) {
							t.Fatalf("%s of %d bytes from %d to %d: %x, want %x", name, n, from, to, mem, want)
						}
					}
				}
			}
		}
	}
}
