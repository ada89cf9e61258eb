package express

import "testing"

const id = 5 // of a window

// neighbour returns another window whose first place is that of id.
func neighbour() uint32 {
	for other := uint32(id + 1); ; other++ {
		if placeOf(other, 0) == placeOf(id, 0) {
			return other
		}
	}
}

// A place that a window has, or that may not be used, is given to no other.
func TestExpose(t *testing.T) {
	tables := HeapTables(1)
	tables.Expose(Window{ID: id}, nil)
	w := Window{ID: neighbour()}
	never := func(int) bool { return false }
	if tables.Expose(w, never) >= 0 || tables.Find(id) == nil {
		t.Error("a place that may not be used was given")
	}
	tables.Retract(w.ID) // has none
	if place := tables.Expose(w, nil); place != placeOf(w.ID, 1) || tables.Find(id) == nil {
		t.Errorf("place %d for the second window, not %d", place, placeOf(w.ID, 1))
	}
	tables.Retract(id)
	if tables.Find(id) != nil || tables.Find(w.ID) == nil {
		t.Error("the other window was retracted")
	}
}

// Nothing of a window that is gone lets a request through that finds the next one's id there.
func TestRetractLeavesNothing(t *testing.T) {
	tables := HeapTables(1)
	e := &tables.windows[id]
	tables.Expose(Window{ID: id, Size: 64, Locks: true}, nil)
	tables.Retract(neighbour()) // is not there
	if e.ID != id+1 || e.Size != 64 || e.Rights[0] != ^uint64(0) {
		t.Fatal("another window was retracted")
	}
	tables.Retract(id)
	if want := (Exposed{Base: noBase, Chunk: noChunk, Sync: noChunk}); *e != want || tables.windows[0] != want {
		t.Errorf("left behind: %+v", *e)
	}
	if tables.Expose(Window{ID: neighbour(), Chunk: 2, Size: 8}, nil) != id || e.Chunk != 2 || e.Size != 8 {
		t.Errorf("the next window: %+v", *e)
	}
}
