package link_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// TestSmallRequestsPassLongTransfers has the target get nothing long, so that the window is full
// and more waits behind it: small requests, of which some are ordered, are answered all the
// same. Then the path carries everything, and nothing is lost, or done twice.
func TestSmallRequestsPassLongTransfers(t *testing.T) {
	for _, joined := range []bool{false, true} {
		f := newRanks(t, 2, func(c *link.Config) {
			joins(c)
			if !joined {
				c.Joins = 0
			}
		})
		a := f.open(0, 1)
		f.Pass(millisecond)
		f.transfer(a, 0, 100_000) // the way is proven, if there is one
		held := true
		f.Filter = func(from, _ int, b []byte) int {
			if held && from == 0 && len(b) > 1000 {
				return 0
			}
			return 1
		}
		e, long := f.e[0], &transfer{left: 130 * 1300}
		for !a.write(long) && e.Usage().FreeSlots >= 100 {
			f.Step()
		}
		f.Step()
		start := f.Now
		for i := range 5 {
			if !a.request(8, wire.FlagOrdered) || !a.ask(8) {
				t.Fatal("no room")
			}
			a.push()
			f.Settle()
			if !a.answered() {
				t.Fatalf("joined %t: request %d waits for what was sent before\n%s", joined, i, f.Describe())
			}
		}
		if f.Now != start {
			t.Errorf("joined %t: the requests took %d µs", joined, (f.Now-start)/microsecond)
		}
		held = false
		f.Until(10_000*millisecond, func() bool { return a.write(long) })
		if err := f.flush(a); err != nil {
			t.Fatal(err)
		}
		f.once(a, 0)
		f.Filter = nil
		f.AtRest()
	}
}

// TestOrderedRequestsPassNoOrderedOnes queues ordered bundles before the peer answers: a small
// one comes after those before it.
func TestOrderedRequestsPassNoOrderedOnes(t *testing.T) {
	f := newRanks(t, 2, joins)
	a := f.dial(0, 1)
	if !a.write(&transfer{20_000, wire.FlagOrdered}) || !a.put(8, 0, wire.FlagOrdered) {
		t.Fatal("no room")
	}
	if err := f.flush(a); err != nil {
		t.Fatal(err)
	}
	f.once(a, 0)
	if took := f.at(1, 0).applied; !slices.IsSorted(took) {
		t.Errorf("the records took effect in the order %v", took)
	}
	f.AtRest()
}

// TestSmallBundlesHoldUpNothingLost sends small bundles without end on a path of a millisecond,
// where one is lost: it is sent again within a few round trips, and not after all the others.
func TestSmallBundlesHoldUpNothingLost(t *testing.T) {
	type frame struct {
		at       int64
		from, to int
		b        []byte
	}
	f := newRanks(t, 2, joins)
	a := f.open(0, 1)
	f.Pass(millisecond)
	var path []frame
	var lost uint64
	lostAt, again, between := int64(0), int64(0), 0
	f.Filter = func(from, to int, b []byte) int {
		var h wire.Header
		if h.Decode(b); from == 0 && h.Kind == wire.KindData {
			switch {
			case lost == 0 && len(path) > 20 && h.Sequence > 500:
				lost, lostAt = h.Sequence, f.Now
				return 0
			case lost != 0 && again == 0:
				between++
				if h.Sequence == lost {
					again = f.Now
				}
			}
		}
		path = append(path, frame{f.Now + millisecond, from, to, bytes.Clone(b)})
		return 0
	}
	for end := f.Now + 200*millisecond; f.Now < end; {
		a.put(8, 0, 0)
		a.push()
		f.Settle()
		f.Advance(f.Now + 5*microsecond)
		for len(path) > 0 && path[0].at <= f.Now {
			p := path[0]
			path = path[1:]
			f.e[p.to].Receive(p.b, link.PathID(p.from))
		}
	}
	if again == 0 || again-lostAt > 8*millisecond || between > 300 {
		t.Errorf("bundle %d was sent again after %d µs and %d others", lost, (again-lostAt)/microsecond, between)
	}
}
