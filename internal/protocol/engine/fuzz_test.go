package engine

import (
	"bytes"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

// Frames made of arbitrary bytes, with session and checksum put right so that
// they reach what lies behind: no panic, and nothing outside the window changes.
// Each frame of the input is a length byte and that many bytes, eight times over.
//
//fuzz:inputs 15000
func FuzzReceive(f *testing.F) {
	frame := func(h wire.Header, body []byte) []byte {
		b := append(make([]byte, wire.HeaderLen), body...)
		for len(b)%8 != 0 {
			b = append(b, 0)
		}
		h.Session = 1
		h.Encode(b)
		return append([]byte{byte(len(b) / 8)}, b...)
	}
	record := func(r wire.Record, data []byte) []byte {
		b := make([]byte, wire.RecordSize(len(data)))
		copy(wire.PutRecord(b, &r, len(data)), data)
		return b
	}
	part := make([]byte, wire.PartLen)
	wire.PutPart(part, 0, 64)
	bodies := [][]byte{
		record(wire.Record{Code: wire.CodePut, Window: testWindow, Disp: 8}, word(1)),
		record(wire.Record{Code: wire.CodePut, Window: testWindow, Disp: 1<<64 - 8}, word(1)),
		record(wire.Record{Code: wire.CodeGet, Window: testWindow, Token: 1}, part),
		record(wire.Record{Code: wire.CodeGetAccumulate, Basic: 8, Op: 1, Window: testWindow, Token: 1}, append(bytes.Clone(part), make([]byte, 64)...)),
		record(wire.Record{Code: wire.CodeCompareSwap, Basic: 8, Window: testWindow, Token: 1}, make([]byte, 16)),
		append(record(wire.Record{Code: wire.CodeLock, Window: testWindow, Token: 1, Flags: 1}, nil), record(wire.Record{Code: wire.CodeUnlock, Window: testWindow}, nil)...),
		record(wire.Record{Code: wire.CodeMessage, Window: 1, Token: 2}, []byte("text")),
		record(wire.Record{Code: wire.CodeMark, Window: testWindow + 1, Flags: wire.FlagReads}, nil),
		record(wire.Record{Code: wire.CodeMark, Window: testWindow + 5}, nil),
		record(wire.Record{Code: wire.CodeMessage, Window: 1, Token: 1 << 31}, []byte("text")),
		record(wire.Record{Code: wire.CodeRevoke, Window: 1, Disp: 1}, nil),
		record(wire.Record{Code: wire.CodeGone, Disp: 1}, nil),
		record(wire.Record{Code: wire.CodeOffer, Window: 1, Token: 2, Disp: 5000}, []byte{1, 0, 0, 0x80}),
		record(wire.Record{Code: wire.CodeTaken, Window: 1<<31 + 1}, nil),
		append(record(wire.Record{Code: wire.CodeMessage, Window: 1, Token: 2, Disp: 8}, part), record(wire.Record{Code: wire.CodeRest}, part)...),
		record(wire.Record{Code: wire.CodeWithdrawn, Window: 1<<31 + 1}, nil),
		record(wire.Record{Code: wire.CodeGet, Window: 1<<31 + 1, Token: 1}, part),
		record(wire.Record{Code: wire.CodeBye}, nil),
		{1, 2, 3},
	}
	var all []byte
	for i, body := range bodies {
		b := frame(wire.Header{Kind: wire.KindData, Packet: uint64(i + 1), Sequence: uint64(i + 1)}, body)
		f.Add(b)
		all = append(all, b...)
	}
	f.Add(all)
	for _, c := range []wire.Code{wire.CodeResult, wire.CodeGranted, wire.CodeRefused, wire.CodeCredit} {
		f.Add(frame(wire.Header{Kind: wire.KindData, Flags: wire.FlagResponse, Packet: 1, Sequence: 1}, record(wire.Record{Code: c, Token: 1 << 16}, word(3))))
	}
	f.Add(frame(wire.Header{Kind: wire.KindAck, AckLargest: 1, AckRequests: 2, AckResponses: 1}, nil))
	f.Add(frame(wire.Header{Kind: wire.KindAck, AckLargest: 1 << 60}, nil))
	// The exchange has become a bundle, and then the bundle after it has been applied, of
	// which no packet has arrived.
	f.Add(append(frame(wire.Header{Kind: wire.KindAck, AckRequests: 2}, nil), frame(wire.Header{Kind: wire.KindAck, AckRequests: 3}, nil)...))
	f.Add(frame(wire.Header{Kind: wire.KindData, Flags: wire.FlagOrdered | wire.FlagAfterAll, Packet: 9, Sequence: 500, Order: 3}, bodies[0]))
	f.Add(frame(wire.Header{Kind: wire.KindReset}, nil))
	f.Add(frame(wire.Header{Kind: wire.KindHelloAck}, make([]byte, wire.HelloLen)))
	for _, body := range bodies[:6] {
		for at := 8; at < len(body) && at < 12; at++ {
			body[at] = 0
		}
		body[8] = testWindow + 1
		b := append(make([]byte, wire.HeaderLen), body...)
		for len(b)%8 != 0 {
			b = append(b, 0)
		}
		h := express.Header{Session: 1, Exchange: 1, Try: 1, Records: 1}
		express.Request(b, h, nil)
		f.Add(append([]byte{byte(len(b) / 8)}, b...))
		h.Flags, h.Records, h.Fate = wire.FlagResponse, 0, express.FateTaken
		express.Request(b[:wire.HeaderLen], h, nil)
		f.Add(append([]byte{wire.HeaderLen / 8}, b[:wire.HeaderLen]...))
	}
	answer := make([]byte, wire.HeaderLen+16)
	for _, fate := range []uint8{express.FateDone, 1 << 1, 0xfe} {
		express.Request(answer, express.Header{Session: 1, Exchange: 1, Try: 1, Flags: wire.FlagResponse, Fate: fate}, nil)
		f.Add(append([]byte{byte(len(answer) / 8)}, answer...))
	}
	f.Fuzz(receiveArbitrary)
}

func receiveArbitrary(t *testing.T, input []byte) {
	const guard = 64
	fb := newRanks(t, 2, 64, func(c *Config) {
		c.Parked, c.Express = 6, express.HeapTables(2)
	})
	whole := bytes.Repeat([]byte{0xa5}, guard+64+guard)
	w, err := windows.New(windows.Config{ID: testWindow + 1, Flavor: window.FlavorCreate, Memory: windows.Slice(whole[guard : guard+64]), Size: 64, DispUnit: 1, GroupSize: 2,
		Checker: windows.NewChecker(testWindow+1, 1)})
	if err != nil {
		t.Fatal(err)
	}
	e := fb.e[1]
	if err := e.Windows().Add(w); err != nil {
		t.Fatal(err)
	}
	a := fb.access(1, 0) // rank 1 has operations of its own that answers may name, one in an exchange
	a.SetReach(true)
	fb.Filter = func(_, _ int, _ []byte) int { return 0 }
	result := bytes.Repeat([]byte{0xa5}, guard+16+guard)
	e.Issue(&onesided.Call{Access: a, Code: wire.CodeGet, Result: result[guard : guard+16 : guard+16]})
	e.Flush(a)
	fb.Step()
	e.Lock(e.OpenAccess(sessionAt(a), testWindow+1), true)
	text := bytes.Repeat([]byte{0xa5}, guard+5000+guard)
	receive := &Receive{Context: 1, Source: AnySource, Tag: AnyTag, Buffer: text[guard : guard+5000 : guard+5000]}
	e.PostReceive(receive)
	send := &Sending{To: sessionAt(a).Peer(), Context: 1, Data: bytes.Repeat([]byte{0x5a}, 5000)}
	e.PostSend(send)
	fb.Step()
	for frames := 0; len(input) > 0 && frames < 64; frames++ {
		n := min(int(input[0])*8, len(input)-1)
		b := bytes.Clone(input[1 : 1+n])
		input = input[1+n:]
		if len(b) >= wire.HeaderLen && wire.Kind(b[5]) == wire.KindExpress {
			le.PutUint64(b[8:], sessionAt(a).ID())
			le.PutUint32(b[16:], express.Checksum(b))
		}
		var h wire.Header
		if f := h.Decode(b); f != wire.Short && f != wire.BadMagic && f != wire.BadVersion && f != wire.BadKind && f != wire.BadFlags {
			if h.Session = sessionAt(a).ID(); h.Kind == wire.KindHello {
				h.Session = 0
			}
			h.Encode(b)
		}
		fb.Advance(fb.Now + 100*microsecond)
		e.Receive(b, 0)
		fb.Step()
	}
	fb.Pass(30_000 * millisecond)
	if !receive.Met() || !send.Met() || bytes.Count(send.Data, []byte{0x5a}) != len(send.Data) {
		t.Errorf("after the peer fell silent a receive waits (%v) or a send (%v), or the peer has changed what was sent", !receive.Met(), !send.Met())
	}
	for _, m := range [][]byte{whole, result, text} {
		for i := range guard {
			if m[i] != 0xa5 || m[len(m)-1-i] != 0xa5 {
				t.Fatal("a frame changed memory that it has no right to")
			}
		}
	}
	if u := e.Usage(); u.FreeSlots != u.Slots || u.Operations != 0 {
		t.Errorf("held after the peer fell silent: %+v", u)
	}
}
