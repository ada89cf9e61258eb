package windows

import (
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// TestConflicting holds the definition against every pair of calls.
func TestConflicting(t *testing.T) {
	acc := func(op datatype.Op, b datatype.Basic) window.Access {
		return window.Access{Call: window.CallAccumulate, Op: op, Basic: b}
	}
	fetch := func(op datatype.Op, b datatype.Basic) window.Access {
		return window.Access{Call: window.CallGetAccumulate, Op: op, Basic: b}
	}
	const i64, i32 = datatype.BasicInt64, datatype.BasicInt32
	put, get := window.Access{Call: window.CallPut}, window.Access{Call: window.CallGet}
	swap := window.Access{Call: window.CallCompareSwap, Basic: i64}
	for _, test := range []struct {
		a, b         window.Access
		want, sameOp bool // with the default, and with same_op
	}{
		{put, put, true, true},
		{put, get, true, true},
		{get, get, false, false},
		{put, acc(datatype.Sum, i64), true, true},
		{put, fetch(datatype.NoOp, i64), true, true},
		{put, swap, true, true},
		{get, acc(datatype.Sum, i64), true, true},
		{get, swap, true, true},
		{get, fetch(datatype.NoOp, i64), false, false}, // nobody writes
		{fetch(datatype.NoOp, i32), fetch(datatype.NoOp, i64), false, false},
		{acc(datatype.Sum, i64), acc(datatype.Sum, i64), false, false},
		{acc(datatype.Sum, i64), fetch(datatype.Sum, i64), false, false},
		{acc(datatype.Sum, i64), acc(datatype.Sum, i32), true, true},
		{acc(datatype.Sum, i64), acc(datatype.Max, i64), true, true},
		{acc(datatype.Sum, i64), fetch(datatype.NoOp, i64), false, true},
		{acc(datatype.Replace, i64), swap, false, false},
		{swap, swap, false, false},
		{swap, acc(datatype.Sum, i32), true, true},
	} {
		for _, pair := range [][2]window.Access{{test.a, test.b}, {test.b, test.a}} {
			if got := conflict(pair[0], pair[1], false); got != test.want {
				t.Errorf("%v and %v: %v", pair[0], pair[1], got)
			}
			if got := conflict(pair[0], pair[1], true); got != test.sameOp {
				t.Errorf("%v and %v with same_op: %v", pair[0], pair[1], got)
			}
		}
	}
}

func TestConflictSays(t *testing.T) {
	c := NewChecker(3, 1)
	c.Note(10, window.Access{Origin: 0, Call: window.CallPut}, 8, 16, true, false)
	news := c.Note(12, window.Access{Origin: 2, Call: window.CallAccumulate, Op: datatype.Sum, Basic: datatype.BasicInt64}, 16, 16, true, false)
	if len(news) != 1 {
		t.Fatalf("%d conflicts", len(news))
	}
	err := news[0].Err()
	const want = "check (rank 1): conflicting accesses: window 3, bytes 16 to 24: put by rank 0 and accumulate with sum of int64 by rank 2 are not ordered by synchronisation"
	if !errors.Is(err, mpierr.RMAConflict) || err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	news[0].Name = "halo"
	if err := news[0].Err().Error(); !strings.Contains(err, `window "halo", bytes 16 to 24`) {
		t.Errorf("of a window with a name: %s", err)
	}
	if s := (window.Access{Origin: 4, Call: window.CallCompareSwap, Basic: datatype.BasicInt64}).String(); !strings.Contains(s, "compare_and_swap of int64 by rank 4") {
		t.Error(s)
	}
}

// TestCheckerOwnAccesses looks at the accesses of one origin: accumulates are
// ordered, everything else is not until it completes.
func TestCheckerOwnAccesses(t *testing.T) {
	put, get, sum := window.Access{Call: window.CallPut}, window.Access{Call: window.CallGet}, window.Access{Call: window.CallAccumulate, Op: datatype.Sum, Basic: datatype.BasicInt64}
	read := window.Access{Call: window.CallGetAccumulate, Op: datatype.NoOp, Basic: datatype.BasicInt64}
	max := window.Access{Call: window.CallAccumulate, Op: datatype.Max, Basic: datatype.BasicInt32}
	for _, test := range []struct {
		name string
		do   func(c *Checker)
		want int
	}{
		{"two puts", func(c *Checker) { c.Note(1, put, 0, 8, true, false); c.Note(1, put, 4, 8, true, false) }, 1},
		{"two puts side by side", func(c *Checker) { c.Note(1, put, 0, 8, true, false); c.Note(1, put, 8, 8, true, false) }, 0},
		{"two puts, flushed", func(c *Checker) { c.Note(1, put, 0, 8, true, false); c.End(1); c.Note(1, put, 4, 8, true, false) }, 0},
		{"another's flush", func(c *Checker) { c.Note(1, put, 0, 8, true, false); c.End(2); c.Note(1, put, 4, 8, true, false) }, 1},
		{"get and put", func(c *Checker) { c.Note(1, get, 0, 8, true, false); c.Note(1, put, 0, 8, true, false) }, 1},
		{"get, locally complete, and put", func(c *Checker) { c.Note(1, get, 0, 8, true, false); c.EndReads(1); c.Note(1, put, 0, 8, true, false) }, 0},
		{"put, locally complete, and get", func(c *Checker) { c.Note(1, put, 0, 8, true, false); c.EndReads(1); c.Note(1, get, 0, 8, true, false) }, 1},
		{"get that is followed, and put", func(c *Checker) { c.Note(1, get, 0, 8, false, false); c.Note(1, put, 0, 8, true, false) }, 0},
		{"put, and get that is followed", func(c *Checker) { c.Note(1, put, 0, 8, true, false); c.Note(1, get, 0, 8, false, false) }, 1},
		{"no_op, locally complete, and put", func(c *Checker) { c.Note(1, read, 0, 8, true, false); c.EndReads(1); c.Note(2, put, 0, 8, true, false) }, 0},
		{"sum, locally complete, and put", func(c *Checker) { c.Note(1, sum, 0, 8, true, false); c.EndReads(1); c.Note(2, put, 0, 8, true, false) }, 1},
		{"put and get, in order", func(c *Checker) { c.Note(1, put, 0, 8, true, true); c.Note(1, get, 0, 8, true, true) }, 0},
		{"put in order, and get in none", func(c *Checker) { c.Note(1, put, 0, 8, true, true); c.Note(1, get, 0, 8, true, false) }, 1},
		{"two puts in order, of two origins", func(c *Checker) { c.Note(1, put, 0, 8, true, true); c.Note(2, put, 0, 8, true, true) }, 1},
		{"accumulates", func(c *Checker) { c.Note(1, sum, 0, 8, true, false); c.Note(1, max, 0, 8, true, false) }, 0},
		{"nothing", func(c *Checker) {
			c.Note(1, put, 0, 8, true, false)
			c.Note(1, put, 4, 0, true, false)
			c.Note(1, put, 4, -1, true, false)
		}, 0},
		{"a range that wraps", func(c *Checker) { c.Note(1, put, 0, 8, true, false); c.Note(1, put, math.MaxUint64, 8, true, false) }, 0},
	} {
		c := NewChecker(1, 0)
		test.do(c)
		if _, got := c.Conflicts(); got != test.want {
			t.Errorf("%s: %d conflicts, want %d", test.name, got, test.want)
		}
	}
	var none *Checker
	none.End(1)
	if list, n := none.Conflicts(); none.Note(1, put, 0, 8, true, false) != nil || list != nil || n != 0 || none.Dropped() != 0 || none.Spans() != 0 {
		t.Error("a nil checker found something")
	}
}

// TestCheckerBounds fills a checker beyond its limits.
func TestCheckerBounds(t *testing.T) {
	c := NewChecker(1, 0)
	put := window.Access{Call: window.CallPut}
	for i := range maxSpans + 10 {
		c.Note(1, put, uint64(16*i), 8, true, false)
	}
	if c.Spans() != maxSpans || c.Dropped() != 10 {
		t.Errorf("%d spans, %d dropped", c.Spans(), c.Dropped())
	}
	c.Note(1, put, 8, 8, true, false) // joins two
	if c.Spans() != maxSpans-1 {
		t.Errorf("%d spans after a gap was filled", c.Spans())
	}
	for i := range maxConflicts + 10 {
		c.Note(2, window.Access{Origin: 2, Call: window.CallGet}, uint64(16*i+32), 8, false, false)
	}
	if list, total := c.Conflicts(); len(list) != maxConflicts || total != maxConflicts+10 {
		t.Errorf("%d conflicts listed of %d", len(list), total)
	}
	c.End(1)
	if c.Spans() != 0 || len(c.tracks) != 0 {
		t.Errorf("%d spans, %d tracks at rest", c.Spans(), len(c.tracks))
	}
}

// TestConflictsAreCountedAsListed has three origins put to one place.
func TestConflictsAreCountedAsListed(t *testing.T) {
	c := NewChecker(1, 0)
	for origin := range 3 {
		c.Note(uint64(origin), window.Access{Origin: origin, Call: window.CallPut}, 0, 8, true, false)
	}
	if list, total := c.Conflicts(); len(list) != 3 || total != 3 {
		t.Errorf("%d conflicts are listed, and %d counted: want 3 pairs", len(list), total)
	}
}

// TestATurnIsBounded enters more accesses in one turn than may be compared in it.
func TestATurnIsBounded(t *testing.T) {
	c := NewChecker(1, 0)
	get := func(holder uint64) window.Access { return window.Access{Origin: int(holder), Call: window.CallGet} }
	for holder := range uint64(100) {
		c.Note(holder, get(holder), 0, 8, true, false)
	}
	c.Turn(1)
	for i := range uint64(10_000) {
		c.Note(0, get(0), 16*i, 8, true, false)
	}
	if spans := c.Spans(); spans > maxLooks/100+100 || c.Dropped() < 8000 || !c.Spent() {
		t.Errorf("%d spans are remembered, %d accesses left out", spans, c.Dropped())
	}
	before := c.Dropped()
	c.Turn(2)
	c.Note(0, get(0), 1<<20, 8, true, false)
	if c.Dropped() != before || c.Spent() {
		t.Error("the next turn is bounded by the one before")
	}
}

// TestCheckerModel compares a checker with a list of all accesses, byte by byte.
func TestCheckerModel(t *testing.T) {
	type live struct {
		holder  uint64
		a       window.Access
		at      int
		ordered bool
	}
	type pair struct {
		first, second window.Access
		at            int
	}
	rapid.Check(t, func(t *rapid.T) {
		c := NewChecker(1, 0)
		c.SameOp = rapid.Bool().Draw(t, "same_op")
		var model []live
		want := map[pair]bool{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			holder := uint64(rapid.IntRange(1, 3).Draw(t, "holder"))
			switch rapid.IntRange(0, 7).Draw(t, "step") {
			case 0:
				c.End(holder)
				var rest []live
				for _, l := range model {
					if l.holder != holder {
						rest = append(rest, l)
					}
				}
				model = rest
				continue
			case 1:
				c.EndReads(holder)
				var rest []live
				for _, l := range model {
					if l.holder != holder || !l.a.Reads() {
						rest = append(rest, l)
					}
				}
				model = rest
				continue
			}
			a := window.Access{Origin: int(holder), Call: window.CallKind(rapid.IntRange(0, 4).Draw(t, "call"))}
			if accumulates(a) {
				a.Basic = rapid.SampledFrom([]datatype.Basic{datatype.BasicInt64, datatype.BasicUint64}).Draw(t, "type")
				if a.Call != window.CallCompareSwap {
					a.Op = rapid.SampledFrom([]datatype.Op{datatype.Sum, datatype.Replace, datatype.NoOp}).Draw(t, "op")
				}
			}
			at, n := rapid.IntRange(0, 30).Draw(t, "at"), rapid.IntRange(1, 10).Draw(t, "n")
			remember, ordered := rapid.Bool().Draw(t, "remember"), rapid.Bool().Draw(t, "ordered")
			c.Note(holder, a, uint64(at), n, remember, ordered)
			for _, l := range model {
				if l.at < at || l.at >= at+n || l.holder == holder && (l.ordered && ordered || accumulates(l.a) && accumulates(a)) {
					continue
				}
				if conflict(l.a, a, c.SameOp) {
					want[pair{l.a, a, l.at}] = true
				}
			}
			for i := at; remember && i < at+n; i++ {
				model = append(model, live{holder, a, i, ordered})
			}
		}
		list, got := c.Conflicts()
		if got != len(list) {
			t.Fatalf("%d conflicts are listed, and %d counted", len(list), got)
		}
		found := map[pair]bool{}
		for _, k := range list {
			for i := k.Start; i < k.End; i++ {
				found[pair{k.First, k.Second, int(i)}] = true
			}
		}
		for p := range want {
			if !found[p] {
				t.Fatalf("not found: %+v", p)
			}
		}
		for p := range found {
			if !want[p] {
				t.Fatalf("found what is none: %+v", p)
			}
		}
	})
}
