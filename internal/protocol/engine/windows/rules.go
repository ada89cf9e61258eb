package windows

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// Rules say which rights a window's owner gives the other ranks of the communicator. Nil: all
// have all.
type Rules struct {
	others window.Rights
	except []rule // by rank; none overlap
}

// rule has the rights of some ranks.
type rule struct {
	first, last int
	rights      window.Rights
}

// ParseRules returns what text says, in the form "RIGHTS; RANKS: RIGHTS; ...": first the rights
// of all that are not named after it. RANKS are numbers and ranges such as 1-3, with a comma
// between. It returns false if text is something else, or names a rank twice.
func ParseRules(text string) (*Rules, bool) {
	others, list, more := strings.Cut(text, ";")
	r, ok := &Rules{}, false
	if r.others, ok = window.ParseRights(others); !ok {
		return nil, false
	}
	for more {
		var part string
		part, list, more = strings.Cut(list, ";")
		ranks, rights, _ := strings.Cut(part, ":")
		given, ok := window.ParseRights(rights)
		if !ok {
			return nil, false
		}
		for of := range strings.SplitSeq(ranks, ",") {
			first, last, ok := parseRanks(of)
			if !ok {
				return nil, false
			}
			r.except = append(r.except, rule{first, last, given})
		}
	}
	return r, r.order()
}

// parseRanks reads a rank, or a range of them.
func parseRanks(text string) (first, last int, ok bool) {
	from, to, isRange := strings.Cut(text, "-")
	a, err := strconv.ParseUint(strings.TrimSpace(from), 10, 31)
	b := a
	if isRange && err == nil {
		b, err = strconv.ParseUint(strings.TrimSpace(to), 10, 31)
	}
	return int(a), int(b), err == nil && a <= b
}

// order sorts the exceptions and joins those that can be one. It returns false if two are for
// the same rank.
func (r *Rules) order() bool {
	slices.SortFunc(r.except, func(a, b rule) int { return cmp.Compare(a.first, b.first) })
	joined := r.except[:0]
	for _, e := range r.except {
		if n := len(joined); n > 0 {
			before := &joined[n-1]
			if e.first <= before.last {
				return false
			}
			if e.first == before.last+1 && e.rights == before.rights {
				before.last = e.last
				continue
			}
		}
		joined = append(joined, e)
	}
	r.except = joined
	return true
}

// String returns the rules in the form that ParseRules takes. Rules with the same exceptions
// have the same text: exceptions with equal rights are one.
func (r *Rules) String() string {
	text := r.others.String()
	for i, e := range r.except {
		same := func(o rule) bool { return o.rights == e.rights }
		if slices.ContainsFunc(r.except[:i], same) {
			continue
		}
		between := "; "
		for _, o := range r.except[i:] {
			if !same(o) {
				continue
			}
			if text += between + strconv.Itoa(o.first); o.last > o.first {
				text += "-" + strconv.Itoa(o.last)
			}
			between = ","
		}
		text += ": " + e.rights.String()
	}
	return text
}

// Of returns the rights of a rank that is not the owner.
func (r *Rules) Of(rank int) window.Rights {
	if r == nil {
		return window.MayAll
	}
	for _, e := range r.except {
		if e.first <= rank && rank <= e.last {
			return e.rights
		}
	}
	return r.others
}

// Restrict reports whether a rank of a communicator of some size lacks a right. The owner has
// them all.
func (r *Rules) Restrict(size, owner int) bool {
	for rank := range size {
		if rank != owner && r.Of(rank) != window.MayAll {
			return true
		}
	}
	return false
}

// Check returns an error of class Arg if the rules name a rank that a communicator of some size
// does not have.
func (r *Rules) Check(size int) error {
	if r == nil || len(r.except) == 0 {
		return nil
	}
	if last := r.except[len(r.except)-1].last; last >= size {
		return mpierr.New("window info", mpierr.Arg, mpierr.NoRank, "info key %s names rank %d, and the window has ranks 0 to %d",
			KeyAccess, last, size-1)
	}
	return nil
}

// Unguarded returns the error of an owner that restricts ranks which map its memory.
func Unguarded() error {
	return fmt.Errorf("info key %s: memory that others map cannot be guarded; leave the key out, or use Allocate", KeyAccess)
}
