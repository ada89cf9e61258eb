package express

import "testing"

// exposeSteps exposes windows whose ids step from first on, and returns how many have a place.
// Each of these must be found, and no other.
func exposeSteps(t *testing.T, first, step uint32, count int) (placed int) {
	t.Helper()
	tables := HeapTables(1)
	exposed := make([]bool, count)
	for i := range exposed {
		id := first + uint32(i)*step
		if exposed[i] = tables.Expose(Window{ID: id}, nil) >= 0; exposed[i] {
			placed++
		}
	}
	for i, ok := range exposed {
		id := first + uint32(i)*step
		if found := tables.Find(id) != nil; found != ok {
			t.Fatalf("step %d: window %d is found: %v, exposed: %v", step, id, found, ok)
		}
		tables.Retract(id)
		if tables.Find(id) != nil {
			t.Fatalf("step %d: window %d is found after it was retracted", step, id)
		}
	}
	return placed
}

// TestPlaces exposes as many windows as programs have, of communicators whose ids step by the
// number of ranks in the job. All have places, and where the table is full nearly all.
func TestPlaces(t *testing.T) {
	for _, step := range []uint32{1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 85, 100, 128, 256, 257, 512, 768, 1000, 1024, 4096} {
		for _, first := range []uint32{0, 1, 17, 1000*step + 5} {
			if n := exposeSteps(t, first, step, 40); n != 40 {
				t.Errorf("step %d from %d: %d of 40 windows have a place", step, first, n)
			}
			if n := exposeSteps(t, first, step, Windows-1); n < 220 {
				t.Errorf("step %d from %d: %d of %d windows have a place", step, first, n, Windows-1)
			}
		}
	}
}
