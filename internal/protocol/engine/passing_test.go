package engine

import (
	"bytes"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// TestSmallCallsPassLongTransfers has the target get nothing long, so that the window is full
// and more waits behind it: a fetch_and_op and a get are carried out all the same. Then the
// path carries everything, and nothing is lost, or done twice.
func TestSmallCallsPassLongTransfers(t *testing.T) {
	for _, joined := range []bool{false, true} {
		f := newRanks(t, 2, 1<<20, func(c *Config) {
			joins(c)
			if !joined {
				c.Joins = 0
			}
		})
		a := f.access(0, 1)
		f.Pass(millisecond)
		f.longPut(a, 100_000) // the way is proven, if there is one
		held := true
		f.Filter = func(from, _ int, b []byte) int {
			if held && from == 0 && len(b) > 1000 {
				return 0
			}
			return 1
		}
		e, data := f.e[0], content(3, 130*1300)
		put := &onesided.Call{Access: a, Code: wire.CodePut, Origin: data}
		for {
			done, err := e.Issue(put)
			if err != nil {
				t.Fatal(err)
			}
			f.Step()
			if done {
				break
			}
			if e.Usage().FreeSlots < 100 {
				break
			}
		}
		sum, got := make([]byte, 8), make([]byte, 8)
		start := f.Now
		for i := range 5 {
			f.issue(e, &onesided.Call{Access: a, Code: wire.CodeGetAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Disp: 1 << 19, Origin: word(2), Result: sum})
			f.issue(e, &onesided.Call{Access: a, Code: wire.CodeGet, Disp: 1 << 19, Result: got})
			e.FlushLocal(a)
			f.Settle()
			if !(*onesided.LocalWait)(a).Met() {
				t.Fatalf("joined %t: call %d waits for what was put before\n%s", joined, i, f.Describe())
			}
			if want := word(uint64(2 * i)); !bytes.Equal(sum, want) {
				t.Errorf("call %d fetched %v", i, sum)
			}
		}
		if f.Now != start {
			t.Errorf("joined %t: the calls took %d µs", joined, (f.Now-start)/microsecond)
		}
		held = false
		f.issue(e, put)
		if err := f.flush(e, a); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(f.mem[1][:len(data)], data) || !bytes.Equal(f.mem[1][1<<19:1<<19+8], word(10)) {
			t.Errorf("joined %t: the target holds something else", joined)
		}
		f.Filter = nil
		f.atRest()
	}
}

// TestOrderedCallsPassNoOrderedCalls has accumulates wait for the window: a small one that is
// waited for comes after those before it.
func TestOrderedCallsPassNoOrderedCalls(t *testing.T) {
	f := newRanks(t, 2, 1<<20, joins)
	a := f.access(0, 1)
	f.Pass(millisecond)
	long := &onesided.Call{Access: a, Code: wire.CodeAccumulate, Op: datatype.Replace, Basic: datatype.BasicUint64, Origin: bytes.Repeat(word(1), 80*150)}
	f.e[0].Issue(long)
	small := &onesided.Call{Access: a, Code: wire.CodeAccumulate, Op: datatype.Replace, Basic: datatype.BasicUint64, Disp: 80 * 8, Origin: word(2)}
	f.issue(f.e[0], long)
	f.issue(f.e[0], small)
	if err := f.flush(f.e[0], a); err != nil {
		t.Fatal(err)
	}
	if got := f.mem[1][80*8 : 80*8+8]; !bytes.Equal(got, word(2)) {
		t.Errorf("the small accumulate, which came last, has left %v", got)
	}
	f.atRest()
}

// TestSmallBundlesHoldUpNothingLost sends small puts without end on a path of a millisecond,
// where one is lost: it is sent again within a few round trips, and not after all the others.
func TestSmallBundlesHoldUpNothingLost(t *testing.T) {
	type frame struct {
		at       int64
		from, to int
		b        []byte
	}
	f := newRanks(t, 2, 1<<20, joins)
	a := f.access(0, 1)
	f.Pass(millisecond)
	e := f.e[0]
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
		if _, err := e.Issue(&onesided.Call{Access: a, Code: wire.CodePut, Disp: 8, Origin: word(1)}); err != nil {
			t.Fatal(err)
		}
		e.Flush(a)
		f.Settle()
		f.Advance(f.Now + 5*microsecond)
		for len(path) > 0 && path[0].at <= f.Now {
			p := path[0]
			path = path[1:]
			f.e[p.to].Receive(p.b, PathID(p.from))
		}
	}
	if again == 0 || again-lostAt > 8*millisecond || between > 300 {
		t.Errorf("bundle %d was sent again after %d µs and %d others", lost, (again-lostAt)/microsecond, between)
	}
}
