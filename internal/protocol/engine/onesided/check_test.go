package onesided

import (
	"fmt"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

// checked is three ranks with windows in checking mode, and the accesses of ranks
// 0 and 2, and of 1 itself, to the window of rank 1.
type checked struct {
	*ranks
	a     [3]*Access
	found []window.Conflict
}

func newChecked(t testing.TB, change func(*setup)) *checked {
	c := &checked{}
	c.ranks = newRanks(t, 3, 1<<16, func(cfg *setup) {
		if change != nil {
			change(cfg)
		}
		cfg.OnConflict = func(k window.Conflict) { c.found = append(c.found, k) }
	})
	for r, e := range c.e {
		e.Windows().Remove(testWindow)
		w, err := windows.New(windows.Config{
			ID: testWindow, Flavor: window.FlavorCreate, Memory: windows.Slice(c.mem[r]),
			Size: len(c.mem[r]), DispUnit: 1, GroupSize: 3, Checker: windows.NewChecker(testWindow, r),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Windows().Add(w); err != nil {
			t.Fatal(err)
		}
	}
	c.a[0], c.a[2] = c.access(0, 1), c.access(2, 1)
	c.a[1] = c.e[1].OpenLocal(c.e[1].Windows().Lookup(testWindow))
	for _, a := range c.a {
		a.SetChecked(true)
	}
	return c
}

func (c *checked) checker() *windows.Checker { return c.e[1].Windows().Lookup(testWindow).Checker() }

// do issues a call and waits until the target has applied it, without a word to
// the checker.
func (c *checked) do(rank int, call Call) {
	c.T.Helper()
	call.Access = c.a[rank]
	c.issue(c.e[rank], &call)
	c.Pass(millisecond)
	c.Until(10_000*millisecond, func() bool {
		s := c.a[rank].session
		return s == nil || c.a[rank].lock == locking || c.a[rank].pending == 0 && c.a[rank].lastSeq < s.Acked(link.Request)
	})
}

func (c *checked) put(rank int, disp uint64, n int) {
	c.T.Helper()
	c.do(rank, Call{Code: wire.CodePut, Disp: disp, Origin: make([]byte, n)})
}

func (c *checked) get(rank int, disp uint64, n int, r *Request) {
	c.T.Helper()
	c.do(rank, Call{Code: wire.CodeGet, Disp: disp, Result: make([]byte, n), Request: r})
}

func (c *checked) add(rank int, op datatype.Op, disp uint64) {
	c.T.Helper()
	c.do(rank, Call{Code: wire.CodeGetAccumulate, Op: op, Basic: datatype.BasicInt64, Disp: disp, Origin: word(1), Result: make([]byte, 8)})
}

func (c *checked) flushAll(rank int) {
	c.T.Helper()
	if err := c.flush(c.e[rank], c.a[rank]); err != nil {
		c.T.Fatal(err)
	}
}

func (c *checked) flushLocal(rank int) {
	c.T.Helper()
	c.e[rank].FlushLocal(c.a[rank])
	c.Until(10_000*millisecond, (*LocalWait)(c.a[rank]).Met)
}

func (c *checked) lock(rank int, exclusive bool) {
	c.T.Helper()
	c.Until(10_000*millisecond, func() bool { return c.e[rank].Lock(c.a[rank], exclusive) })
}

// every puts 8 bytes at every stride of them, 100 times.
func (c *checked) every(rank, stride int) {
	c.T.Helper()
	typ := committed(datatype.Vector(100, 1, stride/8, datatype.Uint64))
	c.do(rank, Call{Code: wire.CodePut, Typed: c.e[rank].Typed(&Local{Mem: make([]byte, 800)}, &Local{}, typ, 1, 800)})
}

// lockPut asks for the exclusive lock, and has a put travel with it.
func (c *checked) lockPut(rank int, disp uint64, n int) {
	c.T.Helper()
	c.lock(rank, true)
	call := Call{Access: c.a[rank], Code: wire.CodePut, Disp: disp, Origin: make([]byte, n)}
	if done, err := c.e[rank].Issue(&call); !done || err != nil {
		c.T.Fatal(done, err)
	}
}

func (c *checked) unlock(rank int) {
	c.T.Helper()
	c.Until(10_000*millisecond, func() bool { return c.e[rank].Unlock(c.a[rank]) })
	c.Until(10_000*millisecond, (*UnlockWait)(c.a[rank]).Met)
	c.a[rank].Unlocked()
}

// TestCheckingMode runs programs that are in order, which must not be reported, and
// some that are not.
func TestCheckingMode(t *testing.T) {
	for _, test := range []struct {
		name string
		want string // the first conflict's bytes and calls; empty: none
		run  func(c *checked)
	}{
		{"puts of two origins", "[8 16) put 0, put 2", func(c *checked) { c.put(0, 0, 16); c.put(2, 8, 16) }},
		{"puts of two origins to two places", "", func(c *checked) { c.put(0, 0, 16); c.put(2, 16, 16) }},
		{"large puts that overlap a little", "[19999 20000) put 0, put 2", func(c *checked) { c.put(0, 0, 20000); c.put(2, 19999, 20000) }},
		{"large puts that touch", "", func(c *checked) { c.put(0, 0, 20000); c.put(2, 20000, 20000) }},
		{"put, flush, put of another", "", func(c *checked) { c.put(0, 0, 8); c.flushAll(0); c.put(2, 0, 8) }},
		{"put, local flush, put of another", "[0 8) put 0, put 2", func(c *checked) { c.put(0, 0, 8); c.flushLocal(0); c.put(2, 0, 8) }},
		{"put, the other's flush, put", "[0 8) put 0, put 2", func(c *checked) { c.put(0, 0, 8); c.flushAll(2); c.put(2, 0, 8) }},
		{"a datatype's blocks, and a put to a gap", "", func(c *checked) { c.every(0, 16); c.put(2, 8, 8) }},
		{"a datatype's blocks, and a put to one", "[32 40) put 0, put 2", func(c *checked) { c.every(0, 16); c.put(2, 24, 16) }},
		{"a put, and the owner's datatype", "[64 72) put 2, put 1", func(c *checked) { c.put(2, 64, 16); c.every(1, 16) }},
		{"gets", "", func(c *checked) { c.get(0, 0, 8, nil); c.get(2, 0, 8, nil); c.get(1, 0, 8, nil) }},
		{"get and put", "[0 8) get 0, put 2", func(c *checked) { c.get(0, 0, 8, nil); c.put(2, 0, 8) }},
		{"get, local flush, put", "", func(c *checked) { c.get(0, 0, 8, nil); c.flushLocal(0); c.put(2, 0, 8) }},
		{"a large get and put", "[40000 40008) get 0, put 2", func(c *checked) { c.get(0, 0, 60000, nil); c.put(2, 40000, 8) }},
		{"get that was waited for, put", "", func(c *checked) { c.get(0, 0, 8, &Request{}); c.put(2, 0, 8); c.put(0, 8, 8) }},
		{"put and get", "[0 8) put 0, get 2", func(c *checked) { c.put(0, 0, 8); c.get(2, 0, 8, &Request{}) }},
		{"sums", "", func(c *checked) { c.add(0, datatype.Sum, 0); c.add(2, datatype.Sum, 0); c.add(1, datatype.Sum, 0) }},
		{"sum and no_op", "", func(c *checked) { c.add(0, datatype.Sum, 0); c.add(2, datatype.NoOp, 0) }},
		{"no_op, local flush, put", "", func(c *checked) { c.add(0, datatype.NoOp, 0); c.flushLocal(0); c.put(2, 0, 8) }},
		{"no_op that was waited for, put", "", func(c *checked) {
			c.do(0, Call{Code: wire.CodeGetAccumulate, Op: datatype.NoOp, Basic: datatype.BasicInt64, Result: make([]byte, 8), Request: &Request{}})
			c.put(2, 0, 8)
		}},
		{"no_op and put", "[0 8) get_accumulate 0, put 2", func(c *checked) { c.add(0, datatype.NoOp, 0); c.put(2, 0, 8) }},
		{"sum, local flush, put", "[0 8) get_accumulate 0, put 2", func(c *checked) { c.add(0, datatype.Sum, 0); c.flushLocal(0); c.put(2, 0, 8) }},
		{"sum and max", "[0 8) get_accumulate 0, get_accumulate 2", func(c *checked) { c.add(0, datatype.Sum, 0); c.add(2, datatype.Max, 0) }},
		{"sum and get", "[4 8) get_accumulate 0, get 2", func(c *checked) { c.add(0, datatype.Sum, 0); c.get(2, 4, 16, nil) }},
		{"replace and compare_and_swap", "", func(c *checked) {
			c.add(0, datatype.Replace, 0)
			c.do(2, Call{Code: wire.CodeCompareSwap, Basic: datatype.BasicInt64, Compare: word(0), Origin: word(1), Result: make([]byte, 8)})
		}},
		{"put and compare_and_swap", "[0 8) put 0, compare_and_swap 2", func(c *checked) {
			c.put(0, 0, 16)
			c.do(2, Call{Code: wire.CodeCompareSwap, Basic: datatype.BasicInt64, Compare: word(0), Origin: word(1), Result: make([]byte, 8)})
		}},
		{"one origin's puts", "[0 4) put 0, put 0", func(c *checked) { c.put(0, 0, 8); c.put(0, 0, 4) }},
		{"one origin's puts, flushed", "", func(c *checked) { c.put(0, 0, 8); c.flushAll(0); c.put(0, 0, 8) }},
		{"one origin's accumulates", "", func(c *checked) { c.add(0, datatype.Sum, 0); c.add(0, datatype.Max, 0); c.add(0, datatype.NoOp, 0) }},
		{"the owner's put, and another's", "[0 8) put 1, put 2", func(c *checked) { c.put(1, 0, 8); c.put(2, 0, 8) }},
		{"the owner's put, flushed", "", func(c *checked) { c.put(1, 0, 8); c.flushAll(1); c.put(2, 0, 8) }},
		{"the owner's get, put", "[0 8) get 1, put 2", func(c *checked) { c.get(1, 0, 8, nil); c.put(2, 0, 8) }},
		{"the owner's get, locally flushed, put", "", func(c *checked) { c.get(1, 0, 8, nil); c.flushLocal(1); c.put(2, 0, 8) }},
		{"exclusive locks", "", func(c *checked) {
			for range 2 {
				for _, rank := range []int{0, 1, 2} {
					c.lock(rank, true)
					c.put(rank, 0, 8)
					c.get(rank, 8, 8, nil)
					c.unlock(rank)
				}
			}
		}},
		{"exclusive locks that wait", "", func(c *checked) {
			c.lock(0, true)
			c.put(0, 0, 8)
			c.lockPut(2, 0, 8)
			c.unlock(0)
			c.Pass(10 * millisecond)
			c.unlock(2)
		}},
		{"a flush that travels with a lock", "", func(c *checked) {
			c.lock(0, true)
			c.put(0, 0, 8)
			c.lockPut(2, 0, 8)
			c.e[2].Flush(c.a[2])
			c.Pass(10 * millisecond)
			c.unlock(0)
			c.Until(10_000*millisecond, (*FlushWait)(c.a[2]).Met)
			c.put(0, 0, 8)
			c.unlock(2)
		}},
		{"a flush that waits for a lock", "", func(c *checked) {
			c.lock(0, true)
			c.put(0, 0, 8)
			c.lockPut(2, 0, 8)
			c.Pass(10 * millisecond)
			c.e[2].Flush(c.a[2])
			c.Pass(10 * millisecond)
			if (*FlushWait)(c.a[2]).Met() {
				c.T.Error("the flush did not wait for the lock")
			}
			c.unlock(0)
			c.Until(10_000*millisecond, (*FlushWait)(c.a[2]).Met)
			c.put(0, 0, 8)
			c.unlock(2)
		}},
		{"shared locks", "[0 8) put 0, put 2", func(c *checked) {
			c.lock(0, false)
			c.lock(2, false)
			c.put(0, 0, 8)
			c.put(2, 0, 8)
			c.unlock(0)
			c.unlock(2)
		}},
		{"shared locks, one after the other", "", func(c *checked) {
			c.lock(0, false)
			c.put(0, 0, 8)
			c.unlock(0)
			c.lock(2, false)
			c.put(2, 0, 8)
			c.unlock(2)
		}},
		{"what was refused", "", func(c *checked) {
			c.put(0, 1<<16, 8)
			c.put(2, 1<<16, 8)
			_, _ = c.a[0].TakeError(), c.a[2].TakeError()
		}},
	} {
		c := newChecked(t, nil)
		test.run(c)
		got := ""
		if len(c.found) > 0 {
			k := c.found[0]
			got = fmt.Sprintf("[%d %d) %s %d, %s %d", k.Start, k.End, k.First.Call, k.First.Origin, k.Second.Call, k.Second.Origin)
			if k.Window != testWindow || k.Target != 1 {
				t.Errorf("%s: at window %d of rank %d", test.name, k.Window, k.Target)
			}
		}
		if got != test.want {
			t.Errorf("%s: found %q, want %q", test.name, got, test.want)
		}
		if n := c.e[1].Stats.Conflicts; (n > 0) != (test.want != "") || n != uint64(c.checker().Total()) {
			t.Errorf("%s: %d conflicts counted", test.name, n)
		}
		for rank := range c.a {
			c.flushAll(rank)
		}
		if n := c.checker().Spans(); n != 0 {
			t.Errorf("%s: %d ranges remembered at rest", test.name, n)
		}
		c.atRest()
	}
}

// TestMarksAreReliable loses and delays frames, and leaves little room for marks:
// a program in order is not reported.
func TestMarksAreReliable(t *testing.T) {
	c := newChecked(t, func(cfg *setup) { cfg.Slab = link.HeapSlab(32, 0, 1472) })
	n := 0
	c.Filter = func(_, _ int, _ []byte) int {
		n++
		return []int{1, 1, 0, 1, 2}[n%5]
	}
	for i := range 20 {
		rank := []int{0, 2}[i%2]
		c.put(rank, 0, 3000)
		if i%3 == 0 {
			c.get(rank, 4096, 3000, nil)
			c.flushLocal(rank)
		}
		c.flushAll(rank)
	}
	if len(c.found) > 0 {
		t.Errorf("found %v", c.found[0].Err())
	}
	c.Filter = nil
	c.atRest()
}

// TestCheckerForgetsTheDead has an origin die after a put.
func TestCheckerForgetsTheDead(t *testing.T) {
	c := newChecked(t, nil)
	c.put(0, 0, 8)
	c.e[1].Session(0).Watch(1)
	c.e[1].Session(0).Await()
	c.Cut[0] = true
	c.Until(20_000*millisecond, func() bool { return c.e[1].Session(0).Err() != nil })
	c.put(2, 0, 8)
	if len(c.found) > 0 || c.checker().Spans() != 1 {
		t.Errorf("found %v, %d ranges remembered", c.found, c.checker().Spans())
	}
}

// TestChecksOfABundleAreBounded gets many small blocks from a window that many have
// accessed: the target compares as many as one turn may cost, and leaves the rest.
func TestChecksOfABundleAreBounded(t *testing.T) {
	c := newChecked(t, nil)
	for i := range uint64(1000) {
		c.checker().Note(1<<32+i, window.Access{Origin: 1, Call: window.CallGet}, 0, 1, true, false)
	}
	typ := committed(datatype.Vector(1<<15-1, 1, 2, datatype.Byte))
	result := make([]byte, 1<<15-1)
	before, spans := c.checker().Dropped(), c.checker().Spans()
	c.do(0, Call{Code: wire.CodeGet, Typed: c.e[0].Typed(&Local{}, &Local{Mem: result}, typ, 1, len(result))})
	if left := c.checker().Dropped() - before; left != 1 {
		t.Errorf("the target went on beyond its bound %d times", left)
	}
	if n := c.checker().Spans() - spans; n == 0 || n > 1000 {
		t.Errorf("%d blocks are remembered", n)
	}
	c.put(2, 1<<15, 8) // conflicts with nothing that was remembered, in a turn of its own
	if _, total := c.checker().Conflicts(); total != 0 || c.checker().Dropped() != before+1 {
		t.Errorf("%d conflicts; the next bundle is bounded by this one", total)
	}
}
