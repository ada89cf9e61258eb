package elements

import (
	"math"
	"sync"
	"testing"

	"github.com/xdprma/xdprma/datatype"
)

func TestMinLocAndMaxLocTakeTheLowerIndexOfEquals(t *testing.T) {
	type pair = datatype.Pair[float64]
	for _, c := range []struct {
		op         datatype.Op
		a, b, want pair
	}{
		{datatype.MinLoc, pair{Value: 1, Index: 5}, pair{Value: 2, Index: 1}, pair{Value: 1, Index: 5}},
		{datatype.MinLoc, pair{Value: 2, Index: 1}, pair{Value: 1, Index: 5}, pair{Value: 1, Index: 5}},
		{datatype.MinLoc, pair{Value: 1, Index: 5}, pair{Value: 1, Index: 3}, pair{Value: 1, Index: 3}},
		{datatype.MinLoc, pair{Value: 1, Index: -3}, pair{Value: 1, Index: 3}, pair{Value: 1, Index: -3}},
		{datatype.MaxLoc, pair{Value: 1, Index: 5}, pair{Value: 2, Index: 9}, pair{Value: 2, Index: 9}},
		{datatype.MaxLoc, pair{Value: 2, Index: 9}, pair{Value: 1, Index: 5}, pair{Value: 2, Index: 9}},
		{datatype.MaxLoc, pair{Value: 2, Index: 9}, pair{Value: 2, Index: 5}, pair{Value: 2, Index: 5}},
		{datatype.MaxLoc, pair{Value: math.Inf(-1), Index: 9}, pair{Value: -7, Index: 5}, pair{Value: -7, Index: 5}},
		{datatype.MinLoc, pair{Value: 0, Index: 9}, pair{Value: math.Copysign(0, -1), Index: 5}, pair{Value: math.Copysign(0, -1), Index: 5}},
	} {
		mem := aligned(16)
		copy(mem, encode(c.a))
		Accumulate(c.op, datatype.BasicFloat64Int32, mem, encode(c.b))
		if got := decode[pair](mem); got != c.want {
			t.Errorf("%s of %v and %v is %v, want %v", c.op, c.a, c.b, got, c.want)
		}
	}
}

// TestMinLocIsAtomic has goroutines offer values, of which the least must win
// together with its own index.
func TestMinLocIsAtomic(t *testing.T) {
	narrow, broad := aligned(8), aligned(16)
	copy(narrow, encode(datatype.Pair[int32]{Value: math.MaxInt32, Index: 0}))
	copy(broad, encode(datatype.Pair[int64]{Value: math.MaxInt64, Index: 0}))
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 1000; i > 0; i-- {
				v := i*4 + w
				Accumulate(datatype.MinLoc, datatype.BasicInt32Int32, narrow, encode(datatype.Pair[int32]{Value: int32(v), Index: int32(-v)}))
				Accumulate(datatype.MinLoc, datatype.BasicInt64Int32, broad, encode(datatype.Pair[int64]{Value: int64(v), Index: int32(-v)}))
			}
		})
	}
	wg.Wait()
	if got := decode[datatype.Pair[int32]](narrow); got != (datatype.Pair[int32]{Value: 4, Index: -4}) {
		t.Errorf("got %v", got)
	}
	if got := decode[datatype.Pair[int64]](broad); got != (datatype.Pair[int64]{Value: 4, Index: -4}) {
		t.Errorf("got %v", got)
	}
}
