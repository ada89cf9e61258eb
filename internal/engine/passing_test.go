package engine

import (
	"bytes"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/onesided"
	"github.com/xdprma/xdprma/internal/wire"
)

// TestSmallCallsPassLongTransfers has the target get nothing long, so that the window is full
// and more waits behind it: a fetch_and_op and a get are carried out all the same. Then the
// path carries everything, and nothing is lost, or done twice.
func TestSmallCallsPassLongTransfers(t *testing.T) {
	for _, joined := range []bool{false, true} {
		f := newFabric(t, 2, 1<<20, func(c *Config) {
			joins(c)
			if !joined {
				c.Joins = 0
			}
		})
		a := f.access(0, 1)
		f.pass(millisecond)
		f.longPut(a, 100_000) // the way is proven, if there is one
		held := true
		f.filter = func(from, _ int, b []byte) int {
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
			f.step()
			if done {
				break
			}
			if e.Usage().FreeSlots < 100 {
				break
			}
		}
		sum, got := make([]byte, 8), make([]byte, 8)
		start := f.now
		for i := range 5 {
			f.issue(e, &onesided.Call{Access: a, Code: wire.CodeGetAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Disp: 1 << 19, Origin: word(2), Result: sum})
			f.issue(e, &onesided.Call{Access: a, Code: wire.CodeGet, Disp: 1 << 19, Result: got})
			e.FlushLocal(a)
			f.settle()
			if !(*onesided.LocalWait)(a).Met() {
				t.Fatalf("joined %t: call %d waits for what was put before\n%s", joined, i, f.describe())
			}
			if want := word(uint64(2 * i)); !bytes.Equal(sum, want) {
				t.Errorf("call %d fetched %v", i, sum)
			}
		}
		if f.now != start {
			t.Errorf("joined %t: the calls took %d µs", joined, (f.now-start)/microsecond)
		}
		held = false
		f.issue(e, put)
		if err := f.flush(e, a); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(f.mem[1][:len(data)], data) || !bytes.Equal(f.mem[1][1<<19:1<<19+8], word(10)) {
			t.Errorf("joined %t: the target holds something else", joined)
		}
		f.filter = nil
		f.atRest()
	}
}

// TestOrderedCallsPassNoOrderedCalls has accumulates wait for the window: a small one that is
// waited for comes after those before it.
func TestOrderedCallsPassNoOrderedCalls(t *testing.T) {
	f := newFabric(t, 2, 1<<20, joins)
	a := f.access(0, 1)
	f.pass(millisecond)
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
