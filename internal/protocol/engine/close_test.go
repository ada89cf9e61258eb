package engine

import (
	"bytes"
	"errors"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// receiveInto posts a receive on context 1.
func (f *ranks) receiveInto(at, source, tag int, buf []byte) *Receive {
	f.dial(at, source)
	r := &Receive{Context: 1, Source: source, Tag: tag, Buffer: buf}
	f.e[at].PostReceive(r)
	return r
}

// TestEvictEndsResults evicts memory that results of calls, receives and messages lie in:
// whatever comes later leaves it alone, and the sender's data beside it.
func TestEvictEndsResults(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a, e := f.access(0, 1), f.e[0]
	for i := range f.mem[1] {
		f.mem[1][i] = 0xff
	}
	mem, outside := make([]byte, 100_000), make([]byte, 8)
	untouched := func() {
		t.Helper()
		if !bytes.Equal(mem, make([]byte, len(mem))) {
			t.Error("evicted memory was written to")
		}
	}
	// Receives: one that waits, one of an offer that is under way.
	posted, pulling := f.receiveInto(0, 1, 5, mem[:8]), f.receiveInto(0, 1, 6, mem[1000:41_000])
	offer := f.send(1, 0, 1, 6, content(1, 40_000))
	for !pulling.Matched() {
		f.Step()
	}
	release := f.Detain(1, 0)
	d := committed(datatype.Vector(8, 1, 2, datatype.Byte))
	typed := e.Typed(&onesided.Local{}, &onesided.Local{Mem: mem[64:80], Type: d, Count: 1}, d, 1, 8)
	var r onesided.Request
	f.issue(e, &onesided.Call{Access: a, Code: wire.CodeGet, Result: mem[16:24], Request: &r})
	f.issue(e, &onesided.Call{Access: a, Code: wire.CodeGet, Typed: typed})
	f.issue(e, &onesided.Call{Access: a, Code: wire.CodeGet, Result: outside})
	f.Settle()
	out := f.send(0, 1, 1, 7, mem[50_000:90_000])
	f.Settle()

	e.Evict(mem)
	for name, end := range map[string]struct {
		met bool
		err error
	}{
		"get": {r.Met(), r.Err()}, "receive": {posted.Met(), posted.Err()},
		"receive under way": {pulling.Met(), pulling.Err()}, "send": {out.Met(), out.Err()},
	} {
		if !end.met || !errors.Is(end.err, mpierr.Win) {
			t.Errorf("%s: met %v, %v", name, end.met, end.err)
		}
	}
	release()
	untouched()
	if !bytes.Equal(outside, f.mem[1][:8]) {
		t.Errorf("the result beside it: %v", outside)
	}
	f.Until(1000*millisecond, offer.Met)
	if err := offer.Err(); err != nil {
		t.Errorf("the sender of what is not received any more: %v", err)
	}
	f.send(1, 0, 1, 5, content(2, 8)) // for the receive that has ended
	f.Settle()
	untouched()
	if err := a.TakeError(); !errors.Is(err, mpierr.Win) {
		t.Errorf("the access tells %v", err)
	}
	in := f.receiveInto(0, 1, 5, outside)
	f.Until(1000*millisecond, in.Met)
	f.atRest()
}

// TestEvictEndsWhatWaits evicts memory that calls have for their results which wait for a
// post or a lock, at another rank and at the own.
func TestEvictEndsWhatWaits(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	e := f.e[0]
	for rank := range 2 {
		for i := range f.mem[rank] {
			f.mem[rank][i] = 0xff
		}
	}
	mem, outside := make([]byte, 64), make([]byte, 16)
	own := e.OpenLocal(e.Windows().Lookup(testWindow))
	for i, a := range []*onesided.Access{f.access(0, 1), own} {
		e.Start(a)
		f.issue(e, &onesided.Call{Access: a, Code: wire.CodeGet, Result: mem[8*i:][:8]})
		f.issue(e, &onesided.Call{Access: a, Code: wire.CodeGet, Result: outside[8*i:][:8]})
		f.issue(e, &onesided.Call{Access: a, Code: wire.CodeComplete})
	}
	f.Settle()
	e.Evict(mem)
	e.Post(own, false)
	f.e[1].Post(f.access(1, 0), false)
	f.Settle()
	if !bytes.Equal(mem, make([]byte, len(mem))) {
		t.Error("evicted memory was written to")
	}
	if !bytes.Equal(outside, f.mem[1][:16]) {
		t.Errorf("the results beside it: %v", outside)
	}
	e.CloseAccess(own)
	f.Pass(millisecond)
}
