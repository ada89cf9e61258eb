package datatype

import "testing"

// entries returns a type with a byte at each of the displacements, and the extent.
func entries(t *testing.T, extent int, displacements ...int) *Type {
	t.Helper()
	blocks, err := HindexedBlock(1, displacements, Byte)
	if err != nil {
		t.Fatal(err)
	}
	sized, err := Resized(blocks, 0, extent)
	if err != nil {
		t.Fatal(err)
	}
	if err := sized.Commit(); err != nil {
		t.Fatal(err)
	}
	return sized
}

// TestWalkSkipsTheGapsBetweenEntries walks entries that overlap, touch, and have gaps between them.
func TestWalkSkipsTheGapsBetweenEntries(t *testing.T) {
	for extent := 1; extent < 5; extent++ {
		var it Iter
		it.Reset(entries(t, extent, 0, 1), 3)
		for at := range 6 {
			off, n, _, ok := it.Next(1)
			if want := int64(at/2*extent + at%2); !ok || n != 1 || off != want {
				t.Errorf("extent %d: byte %d is at %d, want %d", extent, at, off, want)
			}
		}
	}
}

// TestOverlapOfMoreEntriesIsFoundLater asks about more entries than were found to be apart before.
func TestOverlapOfMoreEntriesIsFoundLater(t *testing.T) {
	c := entries(t, 1, 0, 5)
	for _, test := range []struct {
		count int
		want  bool
	}{{2, false}, {5, false}, {6, true}, {5, false}, {7, true}, {1, false}} {
		if got := c.OverlapsSelf(test.count); got != test.want {
			t.Errorf("%d entries: %v", test.count, got)
		}
	}
}
