package windows

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

func TestRules(t *testing.T) {
	for _, test := range []struct {
		text, canonical string
		rights          string // of ranks 0 to 5, as numbers
	}{
		{"all", "all", "ffffff"},
		{" none ", "none", "000000"},
		{"read", "read", "111111"},
		{"lock , read,read", "read,lock", "999999"},
		{"read,write,accumulate,lock", "all", "ffffff"},
		{"none;3:all", "none; 3: all", "000f00"},
		{"none; 0-0: write", "none; 0: write", "200000"},
		{"read; 5,1 - 3: accumulate; 0: none", "read; 0: none; 1-3,5: accumulate", "044414"},
		{"read; 1: lock; 2: lock; 4: lock", "read; 1-2,4: lock", "188181"},
		{"read; 1: read", "read; 1: read", "111111"},
		{"all; 002: none; 2147483647: none", "all; 2,2147483647: none", "ff0fff"},
	} {
		r, ok := ParseRules(test.text)
		if !ok {
			t.Errorf("%q is refused", test.text)
			continue
		}
		got := ""
		for rank := range 6 {
			got += string("0123456789abcdef"[r.Of(rank)])
		}
		if r.String() != test.canonical || got != test.rights {
			t.Errorf("%q is %q with rights %s, want %q with %s", test.text, r, got, test.canonical, test.rights)
		}
	}
	for _, bad := range []string{
		"", ";", "Read", "read,", "read,,lock", "all,read", "none,read", "read;", "read; ", "read; 1", "read; :all", "read; 1:",
		"read; 1,: all", "read; -1: all", "read; 1-: all", "read; 3-1: all", "read; +1: all", "read; 1-2-3: all", "read; 2147483648: all",
		"read; 1: all; 1: none", "read; 1-3,3: all", "read; 1: all: none", "1: all", "read: 1", "invalid",
	} {
		if r, ok := ParseRules(bad); ok {
			t.Errorf("%q is taken as %q", bad, r)
		}
		if _, err := ParseInfo(window.Info{KeyAccess: bad}); mpierr.ClassOf(err) != mpierr.Arg {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestRulesKnowTheGroup asks which ranks a group must have, and whether one of them lacks a right.
func TestRulesKnowTheGroup(t *testing.T) {
	for _, test := range []struct {
		text             string
		size, owner      int
		fits, restricted bool
	}{
		{"all", 4, 0, true, false},
		{"none", 1, 0, true, false},
		{"none; 1-3: all", 4, 0, true, false},
		{"none; 1-3: all", 4, 1, true, true},
		{"all; 3: none", 4, 3, true, false},
		{"all; 3: none", 3, 0, false, false},
		{"all; 0: read", 4, 3, true, true},
	} {
		r, _ := ParseRules(test.text)
		err := r.Check(test.size)
		if (err == nil) != test.fits || err != nil && mpierr.ClassOf(err) != mpierr.Arg || r.Restrict(test.size, test.owner) != test.restricted {
			t.Errorf("%q at rank %d of %d: %v, restricts %v", test.text, test.owner, test.size, err, r.Restrict(test.size, test.owner))
		}
	}
	var none *Rules
	if none.Check(1) != nil || none.Restrict(9, 0) || none.Of(3) != window.MayAll {
		t.Error("without rules somebody lacks a right")
	}
}

// TestRulesInInfo looks for the rules in what a window says of itself.
func TestRulesInInfo(t *testing.T) {
	h, err := ParseInfo(window.Info{KeyAccess: "lock,read;1:all"})
	if got := h.Info()[KeyAccess]; err != nil || got != "read,lock; 1: all" {
		t.Errorf("%q, %v", got, err)
	}
	if h, err = ParseInfo(nil); err != nil || h.Info()[KeyAccess] != "all" {
		t.Errorf("%v, %v", h.Info(), err)
	}
}

//fuzz:inputs 60000
func FuzzParseRules(f *testing.F) {
	for _, s := range []string{"all", "none", "read,lock; 1-3,7: read,accumulate,lock; 5: all", "read; 3-1: all", "write;0:none;1:none", "a;:,-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, ok := ParseRules(text)
		if !ok {
			return
		}
		canonical := r.String()
		again, ok := ParseRules(canonical)
		if !ok || again.String() != canonical {
			t.Fatalf("%q is %q, which is %v", text, canonical, again)
		}
		for _, e := range r.except {
			for _, rank := range []int{e.first - 1, e.first, e.last, e.last + 1} {
				if r.Of(rank) != again.Of(rank) {
					t.Fatalf("rank %d: %q gives %v, %q gives %v", rank, text, r.Of(rank), canonical, again.Of(rank))
				}
			}
		}
	})
}

// TestRulesAreWhatTheySay writes rules for ranks one by one, in any order, and reads them.
func TestRulesAreWhatTheySay(t *testing.T) {
	for range 500 {
		var want [12]window.Rights
		text := []string{"write"}
		for rank := range want {
			want[rank] = window.MayWrite
		}
		for _, rank := range rand.Perm(len(want))[:rand.IntN(len(want))] {
			want[rank] = window.Rights(rand.IntN(16))
			text = append(text, string("0123456789"[rank/10])+string("0123456789"[rank%10])+":"+want[rank].String())
		}
		all := strings.Join(text, ";")
		r, ok := ParseRules(all)
		if !ok {
			t.Fatalf("%q is refused", all)
		}
		again, _ := ParseRules(r.String())
		for rank := range want {
			if r.Of(rank) != want[rank] || again.Of(rank) != want[rank] {
				t.Fatalf("%q: rank %d has %v, and by %q %v", all, rank, r.Of(rank), r, again.Of(rank))
			}
		}
	}
}
