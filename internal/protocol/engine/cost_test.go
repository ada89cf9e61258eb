package engine

import (
	"runtime"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// A round trip through both engines allocates nothing.
func TestRoundTripsDoNotAllocate(t *testing.T) {
	f := newRanks(t, 2, 4096, nil)
	a := f.access(0, 1)
	e := f.e[0]
	value, result, block := word(1), make([]byte, 8), make([]byte, 4096)
	var call onesided.Call
	strided := committed(datatype.Vector(100, 1, 3, datatype.Uint64))
	gaps, room := &onesided.Local{Mem: make([]byte, 4096), Type: strided, Count: 1}, &onesided.Local{}
	do := func(c onesided.Call) {
		call = c
		call.Access = a
		switch c.Disp {
		case 1: // from gaps to gaps
			call.Disp, call.Typed = 0, e.Typed(gaps, room, strided, 1, strided.Size())
		case 2:
			call.Disp, call.Typed = 0, e.Typed(room, gaps, strided, 1, strided.Size())
		case 3:
			call.Disp, call.Typed = 0, e.Typed(gaps, gaps, strided, 1, strided.Size())
		}
		for {
			if done, err := e.Issue(&call); err != nil {
				t.Fatal(err)
			} else if done {
				break
			}
			f.Step()
		}
		e.Flush(a)
		for range 100 {
			if (*onesided.FlushWait)(a).Met() {
				f.Advance(f.Now + 1000)
				return
			}
			f.Step()
		}
		t.Fatal("the flush hangs")
	}
	tests := []struct {
		name string
		call onesided.Call
	}{
		{"put", onesided.Call{Code: wire.CodePut, Origin: value}},
		{"put in fragments", onesided.Call{Code: wire.CodePut, Origin: block}},
		{"get", onesided.Call{Code: wire.CodeGet, Result: result}},
		{"get in fragments", onesided.Call{Code: wire.CodeGet, Result: block}},
		{"accumulate", onesided.Call{Code: wire.CodeAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Origin: value}},
		{"fetch and op", onesided.Call{Code: wire.CodeGetAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Origin: value, Result: result}},
		{"compare and swap", onesided.Call{Code: wire.CodeCompareSwap, Basic: datatype.BasicUint64, Compare: value, Origin: value, Result: result}},
		{"typed put", onesided.Call{Code: wire.CodePut, Disp: 1}},
		{"typed get", onesided.Call{Code: wire.CodeGet, Disp: 2}},
		{"typed accumulate", onesided.Call{Code: wire.CodeAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Disp: 1}},
		{"typed get_accumulate", onesided.Call{Code: wire.CodeGetAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Disp: 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if n := testing.AllocsPerRun(200, func() { do(tt.call) }); n != 0 {
				t.Errorf("%v allocations a round trip", n)
			}
		})
	}
	f.atRest()
}

// An idle session is small: a rank may have thousands.
func TestIdleSessionIsSmall(t *testing.T) {
	const peers, limit = 4096, 4096
	slab := HeapSlab(64, 0, 1472)
	id := uint64(0)
	e := New(Config{Rank: 0, Size: peers + 1, Job: testJob, Incarnation: 1, Slab: slab, Windows: &windows.Table{}, Rand: func() uint64 { id++; return id }})
	hello := make([]byte, wire.HeaderLen+wire.HelloLen)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	e.Now = 1000
	before := heap()
	for r := 1; r <= peers; r++ {
		h := wire.Hello{Job: testJob, Incarnation: 1, Session: uint64(r), Rank: uint32(r), Target: 0, MaxPayload: 1472, Credits: 64}
		h.Encode(hello[wire.HeaderLen:])
		(&wire.Header{Kind: wire.KindHello}).Encode(hello)
		e.Receive(hello, PathID(r))
		e.OpenAccess(e.Session(r), 1)
		e.Tick()
		e.Announcements()
		for len(e.Output()) > 0 {
			slot := e.Output()[0].Slot
			e.Took(1)
			e.Reaped([]int32{slot})
		}
	}
	each := (heap() - before) / peers
	t.Logf("%d bytes a session with one access", each)
	if each > limit {
		t.Errorf("%d bytes a session, want at most %d", each, limit)
	}
	runtime.KeepAlive(e)
}
