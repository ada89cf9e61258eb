package windows

import (
	"slices"
	"sort"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/window"
)

// Limits of a Checker.
const (
	maxSpans     = 4096    // ranges remembered; what finds no room is not looked at again
	maxConflicts = 256     // conflicts kept for reading
	maxLooks     = 1 << 17 // steps of comparison in one turn
)

// accumulates reports whether a is one of the accumulate calls.
func accumulates(a window.Access) bool { return a.Call >= window.CallAccumulate }

// conflict reports whether concurrent accesses a and b to one location leave its
// content undefined (section 11.7, U4). sameOp is the info value same_op. The
// standard's examples use compare_and_swap beside other operators, so it goes with
// all of them.
func conflict(a, b window.Access, sameOp bool) bool {
	switch {
	case a.Reads() && b.Reads():
		return false
	case !accumulates(a) || !accumulates(b) || a.Basic != b.Basic:
		return true
	case a.Call == window.CallCompareSwap || b.Call == window.CallCompareSwap || a.Op == b.Op:
		return false
	}
	return sameOp || a.Op != datatype.NoOp && b.Op != datatype.NoOp
}

// Checker remembers, at a window's owner, which bytes each origin has accessed since it
// last completed its operations, and finds conflicting accesses (section 11.7). It sees
// what arrives in requests; the owner's own loads and stores are out of its sight, and
// so are accesses through other windows over the same memory. A holder names an origin,
// a new one for each incarnation. It is bounded: it counts the accesses that it cannot
// remember, and finds no conflicts with them.
//
// A nil Checker remembers nothing.
type Checker struct {
	window uint32
	target int
	Name   string // the window's, for reports
	SameOp bool   // the window's info key accumulate_ops is same_op

	tracks  []*track
	spans   int
	list    []window.Conflict
	total   int
	dropped int
	turn    uint64
	looks   int // in this turn
}

// track is the bytes that one holder has accessed in one way.
type track struct {
	holder  uint64
	access  window.Access
	ordered bool
	spans   []span // disjoint and not adjacent, by start
}

// span is the bytes from start to before end.
type span struct{ start, end uint64 }

// NewChecker returns a checker for the window with the given id of rank target.
func NewChecker(window uint32, target int) *Checker { return &Checker{window: window, target: target} }

// Conflicts returns the first conflicts found, at most 256, and how many there are in
// all. A conflict is one pair of accesses; bytes that touch are one conflict. Beyond 256
// each piece of bytes counts.
func (c *Checker) Conflicts() (list []window.Conflict, total int) {
	if c == nil {
		return nil, 0
	}
	return slices.Clone(c.list), c.total
}

// Total returns how many conflicts were found.
func (c *Checker) Total() int {
	if c == nil {
		return 0
	}
	return c.total
}

// Dropped returns how many accesses could not be remembered.
func (c *Checker) Dropped() int {
	if c == nil {
		return 0
	}
	return c.dropped
}

// Spans returns how many ranges are remembered.
func (c *Checker) Spans() int {
	if c == nil {
		return 0
	}
	return c.spans
}

// Turn bounds the time that looking at the accesses of one turn takes, because the owner
// serves nobody else meanwhile. Accesses beyond the bound, up to the next turn, are not
// looked at.
func (c *Checker) Turn(turn uint64) {
	if turn != c.turn {
		c.turn, c.looks = turn, 0
	}
}

// Spent reports whether the turn's bound is reached. It counts what is left out.
func (c *Checker) Spent() bool {
	if c.looks < maxLooks {
		return false
	}
	c.dropped++
	return true
}

// Note enters an access of holder to n bytes from start on, and returns those
// conflicts with earlier ones that are new in the list. With remember false the
// access is over: it is compared, and forgotten. Ordered accesses of one holder do not conflict
// with each other, and neither do its accumulates.
func (c *Checker) Note(holder uint64, a window.Access, start uint64, n int, remember, ordered bool) []window.Conflict {
	if c == nil || n <= 0 || start+uint64(n) < start || c.Spent() {
		return nil
	}
	s := span{start, start + uint64(n)}
	before := len(c.list)
	c.looks += 1 + len(c.tracks)
	var own *track
	for _, t := range c.tracks {
		if t.holder == holder && t.access == a && t.ordered == ordered {
			own = t
		}
		if t.holder == holder && (t.ordered && ordered || accumulates(t.access) && accumulates(a)) {
			continue
		}
		if !conflict(t.access, a, c.SameOp) {
			continue
		}
		for i := t.first(s.start); i < len(t.spans) && t.spans[i].start < s.end; i++ {
			if o := t.spans[i]; o.end > s.start {
				c.looks += 1 + len(c.list)
				c.report(t.access, a, span{max(o.start, s.start), min(o.end, s.end)})
			}
		}
	}
	if remember {
		c.remember(own, track{holder: holder, access: a, ordered: ordered}, s)
	}
	return c.list[before:]
}

// report lists a conflict, or lets a listed one of the same accesses grow if they touch.
func (c *Checker) report(first, second window.Access, s span) {
	for i := range c.list {
		k := &c.list[i]
		if k.First == first && k.Second == second && k.Start <= s.end && s.start <= k.End {
			k.Start, k.End = min(k.Start, s.start), max(k.End, s.end)
			return
		}
	}
	c.total++
	if len(c.list) < maxConflicts {
		c.list = append(c.list, window.Conflict{Window: c.window, Name: c.Name, Target: c.target, First: first, Second: second, Start: s.start, End: s.end})
	}
}

// first returns the place of the first span that ends at start or later.
func (t *track) first(start uint64) int {
	return sort.Search(len(t.spans), func(i int) bool { return t.spans[i].end >= start })
}

// remember adds s to the holder's track, and makes one of all spans that touch it. If there is no
// track yet, begun becomes it.
func (c *Checker) remember(t *track, begun track, s span) {
	i, j := 0, 0
	if t != nil {
		i = t.first(s.start)
		for j = i; j < len(t.spans) && t.spans[j].start <= s.end; j++ {
			s = span{min(s.start, t.spans[j].start), max(s.end, t.spans[j].end)}
		}
	}
	if i == j && c.spans == maxSpans {
		c.dropped++
		return
	}
	if t == nil {
		t = &begun
		c.tracks = append(c.tracks, t)
	}
	c.looks += (len(t.spans) - j) / 16 // which move
	c.spans += 1 - (j - i)
	t.spans = slices.Replace(t.spans, i, j, s)
}

// End forgets what holder has done: it has completed it, or is gone.
func (c *Checker) End(holder uint64) { c.end(holder, false) }

// EndAll forgets everything: whatever comes is ordered after it.
func (c *Checker) EndAll() {
	if c != nil {
		c.tracks, c.spans = nil, 0
	}
}

// EndReads forgets what holder has only read: it has the results.
func (c *Checker) EndReads(holder uint64) { c.end(holder, true) }

func (c *Checker) end(holder uint64, onlyReads bool) {
	if c == nil {
		return
	}
	c.tracks = slices.DeleteFunc(c.tracks, func(t *track) bool {
		over := t.holder == holder && (!onlyReads || t.access.Reads())
		if over {
			c.spans -= len(t.spans)
		}
		return over
	})
}
