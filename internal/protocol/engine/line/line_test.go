package line

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestLine compares a line with a slice, through all that can happen to it.
func TestLine(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var l Line[int]
		var want []*int
		for step := range 2000 {
			switch n := len(want); {
			case n == 0 || rng.IntN(2+step/500) > 1:
				v := new(int)
				l.Join(v)
				want = append(want, v)
			case rng.IntN(50) == 0:
				odd := rng.IntN(2)
				for _, v := range want {
					*v = rng.IntN(2)
				}
				leaves := func(v *int) bool { return *v == odd }
				l.Drop(leaves)
				want = slices.DeleteFunc(want, leaves)
			default:
				i := 0
				if rng.IntN(2) == 0 {
					i = rng.IntN(n)
				}
				if got := l.Leave(i); got != want[i] {
					t.Fatalf("seed %d, step %d: another one left", seed, step)
				}
				want = slices.Delete(want, i, i+1)
			}
			if !slices.Equal(l.All(), want) || l.Len() != len(want) || l.Empty() != (len(want) == 0) || len(want) > 0 && l.Head() != want[0] {
				t.Fatalf("seed %d, step %d: %d in the line, want %d", seed, step, l.Len(), len(want))
			}
		}
	}
}

// TestLineKeepsNoRoom has a line that is never empty pass many members through.
func TestLineKeepsNoRoom(t *testing.T) {
	var l Line[int]
	for range 100 {
		l.Join(new(int))
	}
	for range 100_000 {
		l.Join(new(int))
		l.Leave(0)
	}
	if cap(l.items) > 1000 || slices.ContainsFunc(l.items[:l.first], func(v *int) bool { return v != nil }) {
		t.Errorf("a line of %d has room for %d, or holds what has left", l.Len(), cap(l.items))
	}
}
