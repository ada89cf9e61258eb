package windows

import (
	"github.com/xdprma/xdprma/window"
	"slices"
	"testing"
)

// TestWindowAdmitsItsGroup asks about ranks inside and outside a window's group, in the
// lives that the window was made with and in others.
func TestWindowAdmitsItsGroup(t *testing.T) {
	for _, test := range []struct {
		group []int
		lives []uint64
	}{
		{nil, nil}, {[]int{}, nil}, {[]int{0}, nil}, {[]int{3, 200, 64}, nil},
		{[]int{0}, []uint64{5}}, {[]int{3, 200, 64}, []uint64{5, 5, 7}}, {[]int{3, 4}, []uint64{0, 5}},
	} {
		c := Config{Flavor: window.FlavorCreate, DispUnit: 1, GroupSize: 1}
		if test.group != nil {
			c.Members = NewMembers(test.group, test.lives, nil)
		}
		w, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		for rank := -1; rank < 400; rank++ {
			for _, life := range []uint64{0, 4, 5, 6, 7} {
				i := slices.Index(test.group, rank)
				want := test.group == nil || i >= 0 && (test.lives == nil || life != 0 && test.lives[i] == life)
				if _, got := w.Rights(rank, life); got != want {
					t.Errorf("group %v, lives %v: rank %d in life %d: %v", test.group, test.lives, rank, life, got)
				}
			}
		}
	}
}
