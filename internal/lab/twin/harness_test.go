package twin

import (
	"bytes"
	"sync/atomic"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

const (
	session, peerSession = 0x1122334455667788, 0x8877665544332211
	rank                 = 3
	id                   = 5                      // of the window
	size                 = 2*express.PageLen - 40 // of the window
	counters             = 4
)

// record is one record of a request, and its data.
type record struct {
	wire.Record
	data []byte
}

func put(disp uint64, data string) record {
	return record{wire.Record{Code: wire.CodePut, Window: id, Disp: disp}, []byte(data)}
}

// asked is the data of a record that asks for n bytes.
func asked(n int, operand ...byte) []byte {
	b := make([]byte, wire.PartLen, wire.PartLen+len(operand))
	wire.PutPart(b, 0, uint32(n))
	return append(b, operand...)
}

func get(disp uint64, n int) record {
	return record{wire.Record{Code: wire.CodeGet, Window: id, Disp: disp}, asked(n)}
}

func fetch(op datatype.Op, operand uint64) record {
	r := record{wire.Record{Code: wire.CodeGetAccumulate, Window: id, Basic: uint8(datatype.BasicUint64), Op: uint8(op)}, asked(8)}
	r.data = le.AppendUint64(r.data, operand)
	return r
}

func lock(flags uint8) record {
	return record{wire.Record{Code: wire.CodeLock, Window: id, Flags: flags}, nil}
}

func notify(counter uint32) record {
	return record{wire.Record{Code: wire.CodeNotify, Window: id, Token: counter}, nil}
}

func unlock() record { return record{wire.Record{Code: wire.CodeUnlock, Window: id}, nil} }

// request returns the payload of a request of exchange n.
func request(n uint64, list ...record) []byte {
	return requestOf(express.Header{Exchange: n, Try: 1}, list...)
}

func requestOf(h express.Header, list ...record) []byte {
	b, results := make([]byte, wire.HeaderLen, express.MaxPayload), 0
	for _, r := range list {
		at := len(b)
		b = append(b, make([]byte, wire.RecordSize(len(r.data)))...)
		copy(wire.PutRecord(b[at:], &r.Record, len(r.data)), r.data)
		r.Data = r.data
		_, n, _ := onesided.Form(&r.Record)
		results += express.Padded(n)
	}
	if n := min(express.PayloadLen(len(b)-wire.HeaderLen, results), express.MaxPayload); n > len(b) {
		b = append(b, make([]byte, n-len(b))...)
	}
	h.Session, h.Records = session, len(list)
	express.Request(b, h, nil)
	return b
}

// target is a rank with one session and one window.
type target struct {
	*Program
	mem      []byte
	words    []byte // of the window's lock
	counters *windows.Counters
}

func newTarget() target {
	t := target{New(express.HeapTables(2)), make([]byte, 2*express.PageLen), make([]byte, windows.LockWordLen), windows.NewCounters(counters)}
	t.OpenSlot(0, express.Slot{Session: session, PeerSession: peerSession, Rank: rank})
	t.Expose(express.Window{ID: id, Rights: windows.NewMembers([]int{rank}, nil, nil).Bits}, t.mem[:size], windows.LockWordIn(t.words), t.counters)
	return t
}

// held returns the lock word.
func (tt target) held() uint64 { return le.Uint64(tt.words) }

// state sets the word of the slot.
func (tt target) state(exchange, state uint64) {
	atomic.StoreUint64(&tt.Place(0).Word, express.WordOf(exchange, state))
}

// done notes how many records are done of the exchange, and the window whose lock it holds.
func (tt target) done(records uint8, locked uint64) {
	tt.Place(0).Outcome, tt.Place(0).Locked = express.Outcome{Done: records}.Pack(), locked
}

// expect serves a request and checks what becomes of it. It returns the answer's body.
func (tt target) expect(t *testing.T, frame []byte, v Verdict, why Reason) []byte {
	t.Helper()
	before, mem := bytes.Clone(frame), bytes.Clone(tt.mem)
	n, gotVerdict, gotReason := tt.Serve(0, frame)
	if gotVerdict != v || gotReason != why {
		t.Fatalf("verdict %d, %v, want %d, %v", gotVerdict, gotReason, v, why)
	}
	if v == ToUser && !bytes.Equal(frame, before) {
		t.Error("a frame for user space was changed")
	}
	if (v != Answer || why == Repeated) && why != Awaited && why != Interrupted && !bytes.Equal(tt.mem, mem) {
		t.Errorf("verdict %d, %v, and the window was changed", v, why)
	}
	if v != Answer {
		return nil
	}
	h, body, fault := express.Decode(frame[:n], nil)
	asked, _, _ := express.Decode(before, nil)
	if fault != wire.OK || h.Session != peerSession || h.Exchange != asked.Exchange || h.Try != asked.Try || h.Flags != wire.FlagResponse {
		t.Fatalf("answer %+v to %+v: %v", h, asked, fault)
	}
	return body
}
