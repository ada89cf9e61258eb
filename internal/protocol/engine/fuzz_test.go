package engine

import (
	"bytes"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/credentials"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

// Frames made of arbitrary bytes, with session and checksum put right so that
// they reach what lies behind: no panic, and nothing outside the window changes.
// Each frame of the input is a length byte and that many bytes, eight times over.
//
//fuzz:inputs 15000
func FuzzReceive(f *testing.F) {
	addFrames(f)
	f.Fuzz(func(t *testing.T, input []byte) { receiveArbitrary(t, input, nil) })
}

// FuzzReceiveFromMember is FuzzReceive where the job has a key, and a member of it sends the
// frames: they have right tags and codes, and are sealed in the second of two runs, with epochs that end soon.
//
//fuzz:inputs 2000
func FuzzReceiveFromMember(f *testing.F) {
	addFrames(f)
	for _, life := range []uint64{1, 2} {
		for _, kind := range []wire.Kind{wire.KindHello, wire.KindHelloAck, wire.KindTicket} {
			g := wire.Greeting{Kind: kind, Ticket: credentials.Of(0, life, secure.Sign).Ticket, TargetLife: 1, Target: 1}
			b := make([]byte, wire.GreetingLen)
			g.Put(b, helloKey)
			f.Add(append([]byte{wire.GreetingLen / 8}, b...))
		}
	}
	short := make([]byte, wire.HeaderLen-8) // with its trailer as long as a header
	short[5] = byte(wire.KindData)
	f.Add(append([]byte{byte(len(short) / 8)}, short...))
	f.Fuzz(func(t *testing.T, input []byte) {
		receiveArbitrary(t, input, &secure.Suite{Level: secure.Sign})
		receiveArbitrary(t, input, &secure.Suite{Level: secure.Seal, Header: wire.HeaderLen, Bounds: secure.Bounds{EpochBits: 4}})
	})
}

var helloKey = (*siphash.Key)(&credentials.Secrets.Hello)

// addFrames adds frames of all kinds to what f begins with.
func addFrames(f *testing.F) {
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
}

// member is a rank that makes frames of its own, which its peer believes.
type member struct {
	guard *secure.Guard
	codes secure.ExpressKeys
}

// answerer returns rank 0 of life 1 as one that has answered the hello.
func answerer(t *testing.T, suite secure.Suite, hello []byte) *member {
	chains, err := credentials.Answerer(0, 1, suite.Level, hello)
	if err != nil {
		t.Fatal(err)
	}
	m := &member{secure.NewGuard(&chains, suite), chains.Express()}
	m.guard.Seal(make([]byte, secure.TrailerLen))
	m.guard.Renew() // the engine of rank 0 has used numbers before
	return m
}

// sign makes a frame of what b says, in a session with the given id.
func (m *member) sign(b []byte, id uint64) []byte {
	if len(b) < 16 {
		return b
	}
	le.PutUint32(b, wire.Magic)
	b[4] = wire.Version
	switch kind := wire.Kind(b[5]); {
	case kind == wire.KindExpress && len(b) < wire.HeaderLen:
		return b
	case kind == wire.KindExpress:
		le.PutUint64(b[8:], id)
		key := &m.codes.Requests.Sent
		if b[6] == wire.FlagResponse {
			key = &m.codes.Answers.Sent
		}
		express.Sign(b, (*siphash.Key)(key))
		return b
	case wire.IsHandshake(b):
		if kind == wire.KindHelloAck {
			le.PutUint64(b[8:], id)
		}
		if len(b) == wire.GreetingLen {
			wire.SignHandshake(b, helloKey)
		}
		return b
	}
	le.PutUint64(b[8:], id)
	b = append(b, make([]byte, secure.TrailerLen)...)
	if wire.Form(b) == wire.OK { // else nobody looks at its number, and an epoch has few
		m.guard.Seal(b)
	}
	return b
}

// mend gives a frame its session, and the checksum that it then has.
func mend(b []byte, id uint64) []byte {
	if len(b) >= wire.HeaderLen && wire.Kind(b[5]) == wire.KindExpress {
		le.PutUint64(b[8:], id)
		le.PutUint32(b[16:], express.Checksum(b))
	}
	var h wire.Header
	if f := h.Decode(b); f != wire.Short && f != wire.BadMagic && f != wire.BadVersion && f != wire.BadKind && f != wire.BadFlags {
		if h.Session = id; h.Kind == wire.KindHello {
			h.Session = 0
		}
		h.Encode(b)
	}
	return b
}

// receiveArbitrary has a rank receive the frames of an input. If suite is not nil, the job has a key.
func receiveArbitrary(t *testing.T, input []byte, suite *secure.Suite) {
	const guard = 64
	fb := newRanks(t, 2, 64, func(c *Config) {
		c.Parked, c.Express = 6, express.HeapTables(2)
		if suite != nil {
			c.Credentials, c.Job = credentials.Of(c.Rank, c.Incarnation, suite.Level), credentials.Secrets.Job
			c.Credentials.Bounds = suite.Bounds
		}
	})
	var hello []byte
	fb.Filter = func(_, _ int, b []byte) int {
		if kindOfFrame(b) == wire.KindHello {
			hello = bytes.Clone(b)
		}
		return 1
	}
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
	made := mend
	if suite != nil {
		made = answerer(t, *suite, hello).sign
	}
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
		b = made(b, sessionAt(a).ID())
		fb.Advance(fb.Now + 100*microsecond)
		e.Receive(b, 0)
		fb.Step()
	}
	if x := &e.Stats.Faults; suite != nil && x[wire.BadTag]+x[wire.BadCode]+x[wire.Replayed] > 0 {
		t.Errorf("the member's frames are not believed: %v", x)
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
