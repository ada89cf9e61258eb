package onesided

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

var le = binary.LittleEndian

func word(v uint64) []byte { return le.AppendUint64(nil, v) }

func noise(n int) []byte {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestPutGetOfAllSizes(t *testing.T) {
	for _, size := range []int{1, 7, 8, 100, 1360, 1368, 1369, 1400, 5000, 40_000, 300_000} {
		f := newRanks(t, 2, 300_016, nil)
		a := f.access(0, 1)
		data, back := noise(size), make([]byte, size)
		f.issue(f.e[0], &Call{Access: a, Code: wire.CodePut, Disp: 16, Origin: data})
		if err := f.flush(f.e[0], a); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(f.mem[1][16:16+size], data) {
			t.Fatalf("put of %d bytes left something else in the window", size)
		}
		f.issue(f.e[0], &Call{Access: a, Code: wire.CodeGet, Disp: 16, Result: back})
		f.Until(1000*millisecond, (*LocalWait)(a).Met)
		if !bytes.Equal(back, data) {
			t.Fatalf("get of %d bytes brought something else", size)
		}
		f.atRest()
	}
}

// A payload limit that is no multiple of 8, as IPv6 has, with elements that are none either.
func TestFragmentsFitOddPayloads(t *testing.T) {
	for _, limit := range []int{1232, 1451, 1452, 1466, 1471} {
		f := newRanks(t, 2, 64_000, func(c *setup) { c.Slab = link.HeapSlab(64, 0, limit) })
		a := f.access(0, 1)
		for _, b := range []datatype.Basic{datatype.BasicUint8, datatype.BasicUint16, datatype.BasicUint32, datatype.BasicUint64, datatype.BasicComplex128} {
			clear(f.mem[1])
			n := 20_000 / b.Size() * b.Size()
			data := make([]byte, n)
			copy(data, noise(n))
			old := make([]byte, n)
			f.issue(f.e[0], &Call{Access: a, Code: wire.CodeAccumulate, Op: datatype.Replace, Basic: b, Origin: data})
			f.issue(f.e[0], &Call{Access: a, Code: wire.CodeGetAccumulate, Op: datatype.NoOp, Basic: b, Result: old})
			if err := f.flush(f.e[0], a); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(old, data) || !bytes.Equal(f.mem[1][:n], data) {
				t.Fatalf("limit %d, %s: wrong bytes", limit, b)
			}
			f.issue(f.e[0], &Call{Access: a, Code: wire.CodeGetAccumulate, Op: datatype.Replace, Basic: b, Origin: make([]byte, n), Result: old})
			if err := f.flush(f.e[0], a); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(old, data) || !bytes.Equal(f.mem[1][:n], make([]byte, n)) {
				t.Fatalf("limit %d, %s: get_accumulate: wrong bytes", limit, b)
			}
		}
		f.atRest()
	}
}

func TestAtomics(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a := f.access(0, 1)
	old := make([]byte, 8)
	const u64 = datatype.BasicUint64
	calls := []struct {
		call Call
		old  uint64 // fetched, where a result is asked for
		now  uint64
	}{
		{Call{Code: wire.CodeAccumulate, Op: datatype.Sum, Origin: word(5)}, 0, 5},
		{Call{Code: wire.CodeGetAccumulate, Op: datatype.Sum, Origin: word(7), Result: old}, 5, 12},
		{Call{Code: wire.CodeGetAccumulate, Op: datatype.NoOp, Result: old}, 12, 12},
		{Call{Code: wire.CodeCompareSwap, Compare: word(1), Origin: word(2), Result: old}, 12, 12},
		{Call{Code: wire.CodeCompareSwap, Compare: word(12), Origin: word(2), Result: old}, 12, 2},
		{Call{Code: wire.CodeAccumulate, Op: datatype.Replace, Origin: word(9), Order: OrderNone}, 0, 9},
	}
	for i := range calls {
		c := &calls[i]
		c.call.Access, c.call.Basic, c.call.Disp = a, u64, 8
		f.issue(f.e[0], &c.call)
		if err := f.flush(f.e[0], a); err != nil {
			t.Fatal(err)
		}
		if c.call.Result != nil && le.Uint64(old) != c.old {
			t.Errorf("call %d fetched %d, want %d", i, le.Uint64(old), c.old)
		}
		if got := le.Uint64(f.mem[1][8:]); got != c.now {
			t.Errorf("after call %d the window holds %d, want %d", i, got, c.now)
		}
	}
	f.atRest()
}

func TestRequestsAreFollowed(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a := f.access(0, 1)
	var good, bad Request
	f.issue(f.e[0], &Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8), Request: &good})
	f.issue(f.e[0], &Call{Access: a, Code: wire.CodeGet, Disp: 60, Result: make([]byte, 8), Request: &bad})
	if bad.Met() {
		t.Fatal("met before any answer")
	}
	f.Settle()
	if !good.Met() || good.Err() != nil {
		t.Errorf("good: %v, %v", good.Met(), good.Err())
	}
	if !bad.Met() || !errors.Is(bad.Err(), mpierr.RMARange) {
		t.Errorf("bad: %v, %v", bad.Met(), bad.Err())
	}
	if err := a.TakeError(); err != nil {
		t.Errorf("the access tells it too: %v", err)
	}
}

func TestEmptyTransfersSendNothing(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a := f.access(0, 1)
	sent := f.e[0].Stats.Sent
	for _, code := range []wire.Code{wire.CodePut, wire.CodeGet, wire.CodeAccumulate, wire.CodeGetAccumulate} {
		var r Request
		f.issue(f.e[0], &Call{Access: a, Code: code, Basic: datatype.BasicInt64, Op: datatype.Sum, Request: &r})
		if !r.Met() {
			t.Errorf("%s of nothing waits", code)
		}
	}
	f.Settle()
	if f.e[0].Stats.Sent != sent {
		t.Error("a transfer of nothing was sent")
	}
	f.atRest()
}

// Refusals reach the origin with the class that the target found.
func TestRefusals(t *testing.T) {
	u64 := datatype.BasicUint64
	ok := make([]byte, 8)
	tests := []struct {
		name   string
		window uint32
		call   Call
		want   mpierr.Class
	}{
		{"put, unknown window", 99, Call{Code: wire.CodePut, Origin: ok}, mpierr.Win},
		{"get, unknown window", 99, Call{Code: wire.CodeGet, Result: ok}, mpierr.Win},
		{"put, out of range", testWindow, Call{Code: wire.CodePut, Disp: 57, Origin: ok}, mpierr.RMARange},
		{"put, far out of range", testWindow, Call{Code: wire.CodePut, Disp: 1<<64 - 4, Origin: ok}, mpierr.RMARange},
		{"get, out of range", testWindow, Call{Code: wire.CodeGet, Disp: 57, Result: ok}, mpierr.RMARange},
		{"get, large", testWindow, Call{Code: wire.CodeGet, Result: make([]byte, 100_000)}, mpierr.RMARange},
		{"accumulate, out of range", testWindow, Call{Code: wire.CodeAccumulate, Op: datatype.Sum, Basic: u64, Disp: 64, Origin: ok}, mpierr.RMARange},
		{"accumulate, misaligned", testWindow, Call{Code: wire.CodeAccumulate, Op: datatype.Sum, Basic: u64, Disp: 4, Origin: ok}, mpierr.Disp},
		{"accumulate, unknown operator", testWindow, Call{Code: wire.CodeAccumulate, Op: 77, Basic: u64, Origin: ok}, mpierr.Op},
		{"accumulate, undefined operator", testWindow, Call{Code: wire.CodeAccumulate, Op: datatype.BAnd, Basic: datatype.BasicFloat64, Origin: ok}, mpierr.Op},
		{"get_accumulate, misaligned", testWindow, Call{Code: wire.CodeGetAccumulate, Op: datatype.Sum, Basic: u64, Disp: 4, Origin: ok, Result: make([]byte, 8)}, mpierr.Disp},
		{"compare_and_swap, floating point", testWindow, Call{Code: wire.CodeCompareSwap, Basic: datatype.BasicFloat64, Compare: ok, Origin: ok, Result: make([]byte, 8)}, mpierr.Type},
		{"compare_and_swap, out of range", testWindow, Call{Code: wire.CodeCompareSwap, Basic: u64, Disp: 64, Compare: ok, Origin: ok, Result: make([]byte, 8)}, mpierr.RMARange},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newRanks(t, 2, 64, nil)
			s := f.access(0, 1).session
			a := f.e[0].OpenAccess(s, tt.window)
			tt.call.Access = a
			f.issue(f.e[0], &tt.call)
			if err := f.flush(f.e[0], a); !errors.Is(err, tt.want) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
			if err := f.flush(f.e[0], a); err != nil {
				t.Fatalf("told twice: %v", err)
			}
			if !bytes.Equal(f.mem[1], make([]byte, 64)) {
				t.Error("a refused call changed the window")
			}
			f.atRest()
		})
	}
}

// The first part of a long get is refused while later parts are still to be
// issued: those must not travel under the token of an operation that came later.
func TestRefusedPartEndsTheWholeCall(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a := f.access(0, 1)
	long := Call{Access: a, Code: wire.CodeGet, Disp: 1 << 20, Result: make([]byte, 64<<20)}
	if done, err := f.e[0].Issue(&long); done || err != nil {
		t.Fatal("a get of 64 MiB went out at once:", done, err)
	}
	f.Settle() // the refusals arrive
	result := bytes.Repeat([]byte{0xff}, 48)
	f.issue(f.e[0], &Call{Access: a, Code: wire.CodeGet, Result: result})
	if done, _ := f.e[0].Issue(&long); !done {
		t.Error("a refused call goes on")
	}
	f.Settle()
	if !bytes.Equal(result, make([]byte, 48)) {
		t.Errorf("the later get holds %x", result)
	}
	if err := f.flush(f.e[0], a); !errors.Is(err, mpierr.RMARange) {
		t.Error(err)
	}
	f.atRest()
}

// The refusal of a put is lost, and the acknowledgement arrives before it comes
// again: the flush waits for the refusal.
func TestFlushWaitsForLostRefusal(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a := f.access(0, 1)
	f.Pass(millisecond)
	acks := 0
	f.Filter = func(from, _ int, b []byte) int {
		switch {
		case from == 1 && kindOfFrame(b) == wire.KindAck:
			acks++
		case from == 1 && acks == 0:
			return 0
		}
		return 1
	}
	f.issue(f.e[0], &Call{Access: a, Code: wire.CodePut, Disp: 64, Origin: word(1)})
	f.Settle()
	f.issue(f.e[0], &Call{Access: a, Code: wire.CodePut, Origin: word(1)}) // which nothing but an acknowledgement answers
	if err := f.flush(f.e[0], a); !errors.Is(err, mpierr.RMARange) || acks == 0 {
		t.Errorf("after %d acknowledgements: %v", acks, err)
	}
	f.atRest()
}

// TestProbes loses the only bundle under way: it is sent again soon, once, which says
// nothing of the path yet; then after the timeout.
func TestProbes(t *testing.T) {
	window := &narrowing{8}
	f := newRanks(t, 2, 64, func(c *setup) { c.Congestion = func() reliable.Congestion { return window } })
	a := f.access(0, 1)
	for _, losses := range []int{1, 2} {
		e := f.e[0]
		f.Filter = func(from, _ int, b []byte) int {
			if from == 1 {
				f.Advance(f.Now + 20*microsecond)
			}
			return 1
		}
		for range 20 { // round trips to measure
			f.issue(e, &Call{Access: a, Code: wire.CodePut, Origin: word(7)})
			f.flush(e, a)
		}
		before, begin, lost := e.Stats, f.Now, 0
		f.Filter = func(from, _ int, b []byte) int {
			if from == 0 && kindOfFrame(b) == wire.KindData && lost < losses {
				lost++
				return 0
			}
			return 1
		}
		f.issue(e, &Call{Access: a, Code: wire.CodePut, Origin: word(7)})
		if err := f.flush(e, a); err != nil {
			t.Fatal(err)
		}
		probes, timeouts, took := e.Stats.Probes-before.Probes, e.Stats.Timeouts-before.Timeouts, f.Now-begin
		if probes != 1 || timeouts != uint64(losses-1) || (took < millisecond) != (losses == 1) {
			t.Errorf("%d losses: %d probes and %d timeouts in %d µs", losses, probes, timeouts, took/1000)
		}
		if narrow := window.window == 2; narrow != (losses == 2) {
			t.Errorf("%d losses: the window is %d", losses, window.window)
		}
	}
	f.Filter = nil
	f.atRest()
}

// narrowing is a window of 8 bundles, and of 2 after a loss.
type narrowing struct{ window int }

func (n *narrowing) Acked(int)   {}
func (n *narrowing) Lost(bool)   { n.window = 2 }
func (n *narrowing) Window() int { return n.window }

// TestFirstOfTheLost fills the target's parking lot, and the window with bundles
// that find no room there, while the one that all of them wait for was lost.
func TestFirstOfTheLost(t *testing.T) {
	f := newRanks(t, 2, 1<<16, func(c *setup) {
		c.Parked = 3
		c.Congestion = func() reliable.Congestion { return &narrowing{8} }
	})
	a := f.access(0, 1)
	sent := 0
	f.Filter = func(from, _ int, b []byte) int {
		if from == 1 || kindOfFrame(b) != wire.KindData {
			return 1
		}
		if sent++; sent <= 8 && sent != 5 && sent != 6 {
			return 0
		}
		return 1
	}
	data := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7, 8}, 1800)
	f.issue(f.e[0], &Call{Access: a, Code: wire.CodeAccumulate, Basic: datatype.BasicUint64, Op: datatype.Sum, Origin: data})
	if err := f.flush(f.e[0], a); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(f.mem[1][:len(data)], data) {
		t.Error("not everything was added")
	}
	f.atRest()
}
