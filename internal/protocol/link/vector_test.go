package link_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

const reference = "../../../docs/wire.md"

// vector is what the example of docs/wire.md for a job with a key begins with.
type vector struct {
	key    secure.Key
	run    secure.Run
	signer ed25519.PrivateKey
	static [2]*ecdh.PrivateKey // by rank
	fresh  [2]*ecdh.PrivateKey
	ids    [2]uint64 // of the session, in frames to a rank
}

func newVector(t testing.TB) *vector {
	counting := func(first byte) (b [32]byte) {
		for i := range b {
			b[i] = first + byte(i)
		}
		return b
	}
	private := func(first byte) *ecdh.PrivateKey {
		b := counting(first)
		k, err := ecdh.X25519().NewPrivateKey(b[:])
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	seed := counting(0xe0)
	return &vector{
		key: counting(0), run: counting(0x80), signer: ed25519.NewKeyFromSeed(seed[:]),
		static: [2]*ecdh.PrivateKey{private(0x20), private(0x40)},
		fresh:  [2]*ecdh.PrivateKey{private(0x60), private(0xa0)},
		ids:    [2]uint64{0x8877665544332211, 0x1122334455667788},
	}
}

// ticket returns that of a rank, as it is and as it travels.
func (v *vector) ticket(rank int) (secure.Ticket, []byte) {
	t := secure.Ticket{
		Job: v.key.Secrets(v.run).Job, Incarnation: 7 + uint64(rank), Rank: uint32(rank), Level: secure.Sign,
		Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + rank)}), 7770),
		Static:  [32]byte(v.static[rank].PublicKey().Bytes()),
	}
	b := t.Sign(v.signer)
	return t, b[:]
}

// member returns the link of a rank, and its counters.
func (v *vector) member(t testing.TB, rank int) (*link.Link, *link.Slab, *link.Stats) {
	own, ticket := v.ticket(rank)
	slab, stats := link.HeapSlab(64, 0, 1472), &link.Stats{}
	above := &taker{layer{t: t}}
	l := link.New(link.Config{
		Rank: rank, Size: 2, Job: own.Job, Incarnation: own.Incarnation, Rand: func() uint64 { return v.ids[rank] },
		Slab: slab, RxFrames: 1024, Parked: 2048, DeadAfter: testLimit, Seek: func(int) {}, Upper: above, Stats: stats,
		Congestion: func() reliable.Congestion { return reliable.NewAIMD() }, Express: express.HeapTables(2),
		Credentials: &link.Credentials{
			Level: secure.Sign, Secrets: v.key.Secrets(v.run), Static: v.static[rank], Ticket: ticket,
			Signer: v.signer.Public().(ed25519.PublicKey), Fresh: func() *ecdh.PrivateKey { return v.fresh[rank] },
			AES: true,
		},
	})
	l.Now, above.layer.link = 1, l
	return l, slab, stats
}

// taker is a layer that takes whatever records come.
type taker struct{ layer }

func (*taker) Apply(b *link.Bundle) bool {
	b.At = len(b.Body)
	return true
}

// sent returns the one frame that a link has to send.
func sent(t testing.TB, l *link.Link, slab *link.Slab) []byte {
	t.Helper()
	l.Tick()
	out := l.Output()
	if len(out) != 1 {
		t.Fatalf("%d frames leave, not one", len(out))
	}
	b := bytes.Clone(slab.Payload(out[0].Slot)[:out[0].Len])
	slot := out[0].Slot
	l.Took(1)
	l.Reaped([]int32{slot})
	return b
}

// chains computes both ends of the handshake apart from the link.
func (v *vector) chains(t testing.TB, hello, ack []byte) (secure.Chains, secure.Chains) {
	secrets := v.key.Secrets(v.run)
	ends := func(rank int) secure.Ends {
		return secure.Ends{Prologue: wire.Prologue(hello), PSK: &secrets.PSK, Static: v.static[rank], Peer: v.static[1-rank].PublicKey()}
	}
	message := func(greeting []byte) []byte {
		var g wire.Greeting
		if f := g.Get(greeting, (*siphash.Key)(&secrets.Hello)); f != wire.OK {
			t.Fatal(f)
		}
		return g.Noise
	}
	r, theirs, err := secure.Respond(ends(1), message(hello))
	if err != nil {
		t.Fatal(err)
	}
	var terms wire.Terms
	if !terms.Read(theirs) || terms.Session != v.ids[0] {
		t.Errorf("the terms of the hello are %+v", terms)
	}
	terms.Session = v.ids[1] // the links are alike in all else
	answer, second, err := r.Answer(nil, v.fresh[1], terms.Bytes())
	if err != nil || !bytes.Equal(answer, message(ack)) {
		t.Errorf("the answer is %x, %v; that of the link %x", answer, err, message(ack))
	}
	return secure.Chains{Send: second.Receive, Receive: second.Send}, second
}

// cut is a part of a frame that has a line of its own on the page.
type cut struct {
	n    int
	what string
}

var headerCuts = []cut{
	{8, "magic, version, kind, flags"}, {8, "session"}, {8, "checksum, credits"}, {8, "packet number"}, {8, "sequence"},
	{16, "largest packet received, and those before"}, {16, "requests and responses applied"}, {8, "order, refusals"},
}

var greetingCuts = []cut{
	{16, "header: magic, version, kind; session"}, {64, "the rest of the header"},
	{16, "ticket: job, incarnation"}, {8, "rank, port, level, 0"}, {16, "address"}, {32, "static key"}, {64, "signature"},
	{16, "incarnation and rank of the target"}, {32, "ephemeral key"}, {24, "sealed terms"}, {16, "their tag"}, {8, "code"},
}

// dump shows a frame as the page does.
func dump(title string, b []byte, cuts ...cut) string {
	s, at := title+"\n", 0
	for _, c := range cuts {
		what := c.what
		for n := min(16, c.n); c.n > 0; c.n, what, n = c.n-n, "", min(16, c.n-n) {
			s += strings.TrimRight(fmt.Sprintf("%04x  %-47s  %s", at, fmt.Sprintf("% x", b[at:at+n]), what), " ") + "\n"
			at += n
		}
	}
	if at != len(b) {
		panic(fmt.Sprintf("%s: %d of %d bytes are shown", title, at, len(b)))
	}
	return s
}

// TestReferenceWithKey has two ranks with fixed keys meet, as the example in docs/wire.md says,
// and compares all that comes of it with what the page shows. Then it has the ranks believe the
// page's frames. The bytes were once compared with those of a program in Python that does what the
// page says and shares no code with this one.
func TestReferenceWithKey(t *testing.T) {
	v := newVector(t)
	secrets := v.key.Secrets(v.run)
	a, slabA, statsA := v.member(t, 0)
	b, slabB, statsB := v.member(t, 1)
	to, _ := v.ticket(1)
	at := a.DialBy(1, &to)
	hello := sent(t, a, slabA)
	b.Receive(bytes.Clone(hello), 0)
	ack := sent(t, b, slabB)
	first, second := v.chains(t, hello, ack)
	keys, answers := first.Express(), second.Express()
	if keys.Requests.Sent != answers.Requests.Received || keys.Answers.Received != answers.Answers.Sent {
		t.Error("the ends have different keys of express frames")
	}

	// The frames that follow, with the header of the page's first example.
	suite := secure.Suite{Level: secure.Sign, Header: wire.HeaderLen}
	ofA, ofB := secure.NewGuard(&first, suite), secure.NewGuard(&second, suite)
	text := []byte("hello, window")
	put := make([]byte, wire.HeaderLen+wire.RecordSize(len(text))+secure.TrailerLen)
	copy(wire.PutRecord(put[wire.HeaderLen:], &wire.Record{Code: wire.CodePut, Window: 2, Disp: 64}, len(text)), text)
	h := wire.Header{
		Kind: wire.KindData, Flags: wire.FlagAckNow, Session: v.ids[1], Credits: 512,
		Packet: 7, Sequence: 5, AckLargest: 9, AckBits: 0xff, AckRequests: 6, AckResponses: 3,
	}
	h.Put(put)
	sealed := bytes.Clone(put)
	ofA.Seal(put)
	secure.NewGuard(&first, secure.Suite{Level: secure.Seal, Header: wire.HeaderLen}).Seal(sealed)
	acks := make([]byte, wire.HeaderLen+secure.TrailerLen)
	h = wire.Header{Kind: wire.KindAck, Session: v.ids[0], Credits: 512, AckLargest: 7, AckRequests: 6, AckResponses: 3}
	h.Put(acks)
	ofB.Seal(acks)
	request := make([]byte, wire.HeaderLen+wire.RecordSize(8))
	copy(wire.PutRecord(request[wire.HeaderLen:], &wire.Record{Code: wire.CodePut, Window: 2, Disp: 64}, 8), text)
	express.Request(request, express.Header{Session: v.ids[1], Exchange: 1, Try: 1, Records: 1}, (*siphash.Key)(&keys.Requests.Sent))

	_, ticket := v.ticket(0)
	record := func(n int) []cut { return []cut{{24, "put into window 2 at 64"}, {n, "its data"}} }
	trailer := []cut{{16, "tag"}, {8, "number"}}
	line := func(name string, b []byte) string { return fmt.Sprintf("%-28s %x\n", name, b) }
	blocks := []string{
		"what is given\n" +
			line("key of the job", v.key[:]) + line("run", v.run[:]) + line("seed of the signing key", v.signer.Seed()) +
			line("static private key of rank 0", v.static[0].Bytes()) + line("static private key of rank 1", v.static[1].Bytes()) +
			line("ephemeral key of rank 0", v.fresh[0].Bytes()) + line("ephemeral key of rank 1", v.fresh[1].Bytes()),
		"what follows from the key and the run\n" +
			line("job, as in frames", binary.LittleEndian.AppendUint64(nil, secrets.Job)) + line("key of codes of hellos", secrets.Hello[:]) + line("psk", secrets.PSK[:]),
		dump("the ticket of rank 0, 136 bytes", ticket, greetingCuts[2:7]...),
		dump("the hello of rank 0, 312 bytes", hello, greetingCuts...),
		dump("the hello-ack of rank 1, 312 bytes", ack, greetingCuts...),
		"what follows from the handshake\n" +
			line("chain from rank 0 to rank 1", first.Send[:]) + line("chain from rank 1 to rank 0", first.Receive[:]) +
			line("requests of rank 0", keys.Requests.Sent[:]) + line("answers to rank 0", keys.Answers.Received[:]) +
			line("requests of rank 1", keys.Requests.Received[:]) + line("answers to rank 1", keys.Answers.Sent[:]),
		dump("the put, 144 bytes", put, append(append(headerCuts[:len(headerCuts):len(headerCuts)], record(16)...), trailer...)...),
		dump("the put at the level seal, 144 bytes", sealed, append(append(headerCuts[:len(headerCuts):len(headerCuts)], cut{40, "the record and its data, encrypted"}), trailer...)...),
		dump("an ack of rank 1, 104 bytes", acks, append(headerCuts[:len(headerCuts):len(headerCuts)], trailer...)...),
		dump("an express request, 112 bytes", request, append([]cut{
			{8, "magic, version, kind, flags"}, {8, "session"}, {8, "checksum, number of records"}, {8, "packet number"}, {8, "sequence"},
			{8, "code"}, {24, ""}, {8, "order"}}, record(8)...)...),
	}
	page, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?m)^### With a key\n(?s:.*?)^## ").FindString(string(page))
	var onPage []string
	for _, m := range regexp.MustCompile("(?s)```\n(.*?)```").FindAllStringSubmatch(shown, -1) {
		onPage = append(onPage, m[1])
	}
	for i := range max(len(blocks), len(onPage)) {
		var want, got string
		if i < len(blocks) {
			want = blocks[i]
		}
		if i < len(onPage) {
			got = onPage[i]
		}
		if got != want {
			t.Errorf("%s shows\n%s\nthe code makes\n```\n%s```", reference, got, want)
		}
	}

	a.Receive(bytes.Clone(ack), 1)
	if !at.Open() {
		t.Fatalf("the hello-ack opens no session: %+v", *statsA)
	}
	a.Receive(bytes.Clone(acks), 1)
	b.Receive(bytes.Clone(put), 0)
	if s := b.Session(0); s == nil || !s.Open() {
		t.Fatalf("the put opens no session: %+v", *statsB)
	}
	b.Receive(bytes.Clone(request), 0)
	if statsA.Faults != [wire.NumFaults]uint64{} || statsB.Faults != [wire.NumFaults]uint64{} || statsB.ExpressTaken != 1 {
		t.Errorf("frames of the page are not believed: %v, %+v", statsA.Faults, *statsB)
	}
	// The page's numbers are read back, so that a slip of this test's own dump shows.
	for i, frame := range map[int][]byte{3: hello, 4: ack, 6: put, 7: sealed, 8: acks, 9: request} {
		var read []byte
		for _, m := range regexp.MustCompile(`(?m)^[0-9a-f]{4}  ((?:[0-9a-f]{2} ?)+)`).FindAllStringSubmatch(blocks[i], -1) {
			part, err := hex.DecodeString(strings.ReplaceAll(m[1], " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			read = append(read, part...)
		}
		if !bytes.Equal(read, frame) {
			t.Errorf("the dump %d is %x, the frame %x", i, read, frame)
		}
	}
}
