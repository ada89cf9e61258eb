package onesided

import (
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// TestForgedRequests has a peer ask for what no origin asks for.
func TestForgedRequests(t *testing.T) {
	f := newRanks(t, 2, 4096, nil)
	s := f.access(0, 1).session
	e := f.e[0]
	part := func(want uint32) []byte {
		b := make([]byte, wire.PartLen)
		wire.PutPart(b, 0, want)
		return b
	}
	fetch := func(want uint32) wire.Record {
		return wire.Record{
			Code: wire.CodeGetAccumulate, Window: testWindow, Token: 1,
			Basic: uint8(datatype.BasicInt64), Op: uint8(datatype.NoOp), Data: part(want),
		}
	}
	get := func(code wire.Code, window, want uint32) wire.Record {
		return wire.Record{Code: code, Window: window, Token: 1, Data: part(want)}
	}
	f.dial(1, 0)
	for i, test := range []struct {
		r    wire.Record
		want mpierr.Class
	}{
		{fetch(2048), mpierr.Size}, // beyond a frame, within the window
		{get(wire.CodeGet, testWindow, wire.MaxPart+1), mpierr.Size},
		{get(wire.CodeGet, testWindow, 1<<32-1), mpierr.Size},
		{get(wire.CodeGet, testWindow, 4097), mpierr.RMARange},
		{get(wire.CodeGet, offer, wire.MaxPart+1), mpierr.Size},
		{get(wire.CodeGet, offer+1, 8), mpierr.Win}, // which is not there
		{get(wire.CodePut, offer, 8), mpierr.Win},   // which can be read alone
		{get(wire.CodeAccumulate, offer, 8), mpierr.Win},
		{fetch(1 << 31), mpierr.Size},
		{fetch(1<<32 - 8), mpierr.Size},
		{wire.Record{Code: wire.CodeComplete, Window: testWindow}, mpierr.RMASync}, // nothing was posted
		{wire.Record{Code: wire.CodePost, Window: testWindow}, mpierr.Success},
		{wire.Record{Code: wire.CodeComplete, Window: testWindow}, mpierr.RMASync},
		{wire.Record{Code: wire.CodePost, Window: testWindow}, mpierr.RMASync}, // nothing was completed
		{wire.Record{Code: wire.CodePost, Window: testWindow + 1}, mpierr.Win},
		{wire.Record{Code: wire.CodeUnlock, Window: testWindow}, mpierr.RMASync},
		{wire.Record{Code: wire.CodeLock, Window: testWindow}, mpierr.RMASync}, // inside a bundle
	} {
		if got := e.applyRecord(s, &link.Bundle{Session: s.Session}, &test.r); got != test.want {
			t.Errorf("%d: %v: %v, want %v", i, test.r.Code, got, test.want)
		}
	}
	e.Expose(testWindow, true)
	if _, class := e.acquire(s, &wire.Record{Code: wire.CodeLock, Window: testWindow}); class != mpierr.RMASync {
		t.Errorf("a lock of an exposed window: %v", class)
	}
	e.Expose(testWindow, false)
	if _, class := e.acquire(s, &wire.Record{Code: wire.CodeLock, Window: testWindow, Flags: wire.FlagPassing + 1}); class != mpierr.Locktype {
		t.Errorf("a lock of no type: %v", class)
	}
}
