package datatype

import (
	"math"
	"sync"
	"testing"
)

func TestPairsHaveTheirPredefinedDatatypes(t *testing.T) {
	for _, c := range []struct {
		got, want *Type
		size      int
	}{
		{Of[Pair[float32]](), Float32Int32, 8}, {Of[Pair[float64]](), Float64Int32, 16}, {Of[Pair[int64]](), Int64Int32, 16},
		{Of[Pair[int32]](), Int32Int32, 8}, {Of[Pair[int16]](), Int16Int32, 8},
	} {
		if c.got != c.want || c.got.Size() != c.size || c.got.Extent() != c.size || !c.got.Basic().Pair() || c.got.Basic().Comparable() {
			t.Errorf("%s: %v, %d bytes", c.want, c.got, c.got.Size())
		}
	}
}

func TestMinLocAndMaxLocTakeTheLowerIndexOfEquals(t *testing.T) {
	type pair = Pair[float64]
	for _, c := range []struct {
		op         Op
		a, b, want pair
	}{
		{MinLoc, pair{1, 5}, pair{2, 1}, pair{1, 5}},
		{MinLoc, pair{2, 1}, pair{1, 5}, pair{1, 5}},
		{MinLoc, pair{1, 5}, pair{1, 3}, pair{1, 3}},
		{MinLoc, pair{1, -3}, pair{1, 3}, pair{1, -3}},
		{MaxLoc, pair{1, 5}, pair{2, 9}, pair{2, 9}},
		{MaxLoc, pair{2, 9}, pair{1, 5}, pair{2, 9}},
		{MaxLoc, pair{2, 9}, pair{2, 5}, pair{2, 5}},
		{MaxLoc, pair{math.Inf(-1), 9}, pair{-7, 5}, pair{-7, 5}},
		{MinLoc, pair{0, 9}, pair{math.Copysign(0, -1), 5}, pair{math.Copysign(0, -1), 5}},
	} {
		mem := aligned(16)
		copy(mem, encode(c.a))
		Accumulate(c.op, BasicFloat64Int32, mem, encode(c.b))
		if got := decode[pair](mem); got != c.want {
			t.Errorf("%s of %v and %v is %v, want %v", c.op, c.a, c.b, got, c.want)
		}
	}
}

// TestMinLocIsAtomic has goroutines offer values, of which the least must win
// together with its own index.
func TestMinLocIsAtomic(t *testing.T) {
	narrow, broad := aligned(8), aligned(16)
	copy(narrow, encode(Pair[int32]{math.MaxInt32, 0}))
	copy(broad, encode(Pair[int64]{math.MaxInt64, 0}))
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 1000; i > 0; i-- {
				v := i*4 + w
				Accumulate(MinLoc, BasicInt32Int32, narrow, encode(Pair[int32]{int32(v), int32(-v)}))
				Accumulate(MinLoc, BasicInt64Int32, broad, encode(Pair[int64]{int64(v), int32(-v)}))
			}
		})
	}
	wg.Wait()
	if got := decode[Pair[int32]](narrow); got != (Pair[int32]{4, -4}) {
		t.Errorf("got %v", got)
	}
	if got := decode[Pair[int64]](broad); got != (Pair[int64]{4, -4}) {
		t.Errorf("got %v", got)
	}
}
