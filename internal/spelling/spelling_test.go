package spelling

import "testing"

func TestNearest(t *testing.T) {
	names := []string{"XDPRMA_INTERFACE", "XDPRMA_PORT", "XDPRMA_HOST", "no_locks", "same_size"}
	for _, test := range []struct {
		written, name string
		like          bool
	}{
		{"XDPRMA_INTERFASE", "XDPRMA_INTERFACE", true},
		{"XDPRMA_INTERFACES", "XDPRMA_INTERFACE", true},
		{"XDPRMA_INETRFACE", "XDPRMA_INTERFACE", true},
		{"xdprma_PORT", "XDPRMA_PORT", false},
		{"XDPRMA_COLOUR_OF_THE_PLOT", "XDPRMA_INTERFACE", false},
		{"no_lock", "no_locks", true},
		{"XDPRMA_HOST", "XDPRMA_HOST", true},
		{"", "XDPRMA_PORT", false},
	} {
		if name, like := Nearest(test.written, names); like != test.like || like && name != test.name {
			t.Errorf("%q: %q, %t; want %q, %t", test.written, name, like, test.name, test.like)
		}
	}
	if _, like := Nearest("x", nil); like {
		t.Error("there are no names")
	}
}

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"ab", "ba", 1}, {"kitten", "sitting", 3}, {"abc", "abc", 0}, {"abcd", "acbd", 1}, {"abc", "", 3}} {
		if d := distance(test.a, test.b); d != test.want {
			t.Errorf("%q, %q: %d, want %d", test.a, test.b, d, test.want)
		}
	}
}
