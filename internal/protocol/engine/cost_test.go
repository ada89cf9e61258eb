package engine

import (
	"bytes"
	"crypto/ecdh"
	"runtime"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/credentials"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
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

// An idle session is small: a rank may have thousands. One whose frames are signed takes at most
// as much again.
func TestIdleSessionIsSmall(t *testing.T) {
	const limit = 4096
	plain := idleSession(t, 4096, nil, func(e *Engine, r int) {
		hello := make([]byte, wire.HeaderLen+wire.HelloLen)
		h := wire.Hello{Job: testJob, Incarnation: 1, Session: uint64(r), Rank: uint32(r), Target: 0, MaxPayload: 1472, Credits: 64}
		h.Encode(hello[wire.HeaderLen:])
		(&wire.Header{Kind: wire.KindHello}).Encode(hello)
		e.Receive(hello, PathID(r))
	})
	signed := idleSession(t, 512, credentials.Of(0, 1, secure.Sign), func(e *Engine, r int) {
		peer := newSigner(t, r, 0)
		e.Receive(peer.hello, PathID(r))
		e.Receive(peer.first(t, sent(e)), PathID(r))
	})
	t.Logf("%d bytes a session with one access, %d if it is signed", plain, signed)
	if plain > limit || signed > plain+limit {
		t.Errorf("sessions take %d and %d bytes", plain, signed)
	}
}

// idleSession returns the bytes that a session with one access takes at rank 0, which greet opens.
func idleSession(t *testing.T, peers int, own *Credentials, greet func(e *Engine, r int)) uint64 {
	slab := HeapSlab(64, 0, 1472)
	id := uint64(0)
	c := Config{LinkConfig: LinkConfig{Size: peers + 1, Job: testJob, Incarnation: 1, Slab: slab, Rand: func() uint64 { id++; return id }}, Windows: &windows.Table{}}
	if own != nil {
		c.Credentials, c.Job = own, credentials.Secrets.Job
	}
	e := New(c)
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
		greet(e, r)
		if s := e.Session(r); s == nil || !s.Open() {
			t.Fatalf("the session with rank %d is not open", r)
		}
		e.OpenAccess(e.Session(r), 1)
		e.Tick()
		e.Announcements()
		sent(e)
	}
	each := (heap() - before) / uint64(peers)
	runtime.KeepAlive(e)
	return each
}

// sent takes the frames that e has ready, and returns the last one.
func sent(e *Engine) (frame []byte) {
	for len(e.Output()) > 0 {
		o := e.Output()[0]
		frame = bytes.Clone(e.cfg.Slab.Payload(o.Slot)[:o.Len])
		e.Took(1)
		e.Reaped([]int32{o.Slot})
	}
	return frame
}

// signer is a rank that opens a session by hand.
type signer struct {
	hello     []byte
	initiator *secure.Initiator
}

func newSigner(t *testing.T, rank, to int) *signer {
	own := credentials.Of(rank, 1, secure.Sign)
	static, err := ecdh.X25519().NewPublicKey(credentials.Ticket(to, 1, secure.Sign).Static[:])
	if err != nil {
		t.Fatal(err)
	}
	s := &signer{hello: make([]byte, wire.GreetingLen)}
	g := wire.Greeting{Kind: wire.KindHello, Ticket: own.Ticket, TargetLife: 1, Target: uint32(to)}
	key := siphash.Key(own.Secrets.Hello)
	g.Put(s.hello, &key)
	terms := wire.Terms{Session: uint64(rank), MaxPayload: 1472, AES: true, Credits: 64}
	ends := secure.Ends{Prologue: wire.Prologue(s.hello), PSK: &own.Secrets.PSK, Static: own.Static, Peer: static}
	if s.initiator, g.Noise, err = secure.Initiate(nil, ends, own.Fresh(), terms.Bytes()); err != nil {
		t.Fatal(err)
	}
	g.Put(s.hello, &key)
	return s
}

// first returns the first frame of the session, an acknowledgement of nothing.
func (s *signer) first(t *testing.T, answer []byte) []byte {
	var g wire.Greeting
	key := siphash.Key(credentials.Secrets.Hello)
	if f := g.Get(answer, &key); f != wire.OK {
		t.Fatal(f)
	}
	payload, chains, err := s.initiator.Finish(g.Noise)
	var terms wire.Terms
	if err != nil || !terms.Read(payload) {
		t.Fatal(err)
	}
	frame := make([]byte, wire.HeaderLen+secure.TrailerLen)
	h := wire.Header{Kind: wire.KindAck, Session: terms.Session, Credits: 64, AckRequests: 1, AckResponses: 1}
	h.Put(frame)
	secure.NewGuard(&chains, secure.Suite{Level: secure.Sign}).Seal(frame)
	return frame
}
