package collective

import "testing"

// TestIDsAreUnique takes the first and the last ids that there are, at all ranks: they are
// all different, and fewer than a round is left over.
func TestIDsAreUnique(t *testing.T) {
	for size := 1; size <= 7; size++ {
		taken := map[uint32]bool{0: true, WorldContext: true}
		last := (SecondContext - WorldContext - 1) / uint64(size)
		for rank := range size {
			for _, n := range []uint64{0, 1, 2, 3, last - 2, last - 1, last} {
				id := ID(n, rank, size)
				if id == 0 && n == last {
					continue
				}
				if taken[id] || !isID(id) {
					t.Fatalf("%d ranks: %d is not free", size, id)
				}
				taken[id] = true
			}
			if id := ID(last+1, rank, size); id != 0 {
				t.Errorf("got %d when there are none", id)
			}
		}
		for id := uint32(SecondContext - size); id < SecondContext; id++ {
			if !taken[id] {
				t.Errorf("%d ranks: nobody has %d", size, id)
			}
		}
	}
}
