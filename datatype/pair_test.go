package datatype

import "testing"

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
