package window

import (
	"slices"
	"testing"
)

// TestWindowAdmitsItsGroup asks about ranks inside and outside a window's group.
func TestWindowAdmitsItsGroup(t *testing.T) {
	for _, group := range [][]int{nil, {0}, {3, 200, 64}} {
		w, err := New(Config{Flavor: FlavorCreate, DispUnit: 1, GroupSize: 1, Group: group})
		if err != nil {
			t.Fatal(err)
		}
		for rank := range 400 {
			if got, want := w.Admits(rank), group == nil || slices.Contains(group, rank); got != want {
				t.Errorf("group %v: rank %d: %v", group, rank, got)
			}
		}
	}
}
