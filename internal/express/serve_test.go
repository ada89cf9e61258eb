package express

import (
	"testing"

	"github.com/xdprma/xdprma/internal/wire"
)

const (
	session, remote = 0x1122334455667788, 0x8877665544332211
	rank            = 3
)

// record is one record of a request, and its data.
type record struct {
	wire.Record
	data []byte
}

// request returns the payload of a request.
func request(h Header, results int, list ...record) []byte {
	b := make([]byte, wire.HeaderLen, MaxPayload)
	for _, r := range list {
		at := len(b)
		b = append(b, make([]byte, wire.RecordSize(len(r.data)))...)
		copy(wire.PutRecord(b[at:], &r.Record, len(r.data)), r.data)
	}
	if short := PayloadLen(0, results) - len(b); short > 0 {
		b = append(b, make([]byte, short)...)
	}
	h.Session, h.Records = session, len(list)
	Request(b, h)
	return b
}

// A put is executed, and its repeat is answered alike without being executed.
func TestPut(t *testing.T) {
	tables, mem := HeapTables(1), bytesOf(make([]uint64, 16))
	tables.OpenSlot(0, Slot{Session: session, PeerSession: remote, Rank: rank})
	tables.Expose(Window{ID: 5, Mem: mem, Members: func(r int) bool { return r == rank }})
	put := record{wire.Record{Code: wire.CodePut, Window: 5, Disp: 8}, []byte("hello, window")}
	for i, want := range []Reason{None, Repeated} {
		frame := request(Header{Exchange: 1, Try: uint64(i + 1)}, 0, put)
		n, v, why := tables.Serve(0, frame, ByUser)
		if v != Answer || why != want {
			t.Fatalf("%v, %v, want %v", v, why, want)
		}
		h, body, fault := Decode(frame[:n])
		if fault != wire.OK || len(body) != 0 || h.Session != remote || h.Exchange != 1 || h.Try != uint64(i+1) || h.Flags != wire.FlagResponse {
			t.Errorf("answer %+v, %q, %v", h, body, fault)
		}
		if got := string(mem[8:21]); got != []string{"hello, window", "jello, window"}[i] {
			t.Errorf("the window has %q", got)
		}
		mem[8] = 'j'
	}
}
