package wire

import (
	"bytes"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
)

// FuzzGreeting reads arbitrary frames, as they are and with a right code, as a member would make
// it. Nothing is taken without the code, and what is taken is written as it was read.
//
//fuzz:inputs 60000
func FuzzGreeting(f *testing.F) {
	key := &siphash.Key{1}
	for _, g := range []Greeting{
		{Kind: KindHello, TargetLife: 1, Target: 2},
		{Kind: KindHelloAck, Session: 3, TargetLife: 1},
		{Kind: KindTicket, Ticket: bytes.Repeat([]byte{4}, secure.TicketLen), Noise: bytes.Repeat([]byte{5}, NoiseLen)},
	} {
		b := make([]byte, GreetingLen)
		g.Put(b, key)
		f.Add(b)
	}
	f.Add(make([]byte, GreetingLen))
	f.Add(make([]byte, HeaderLen))
	f.Fuzz(func(t *testing.T, b []byte) {
		var g Greeting
		if g.Get(b, &siphash.Key{2}) == OK {
			t.Fatal("a greeting is taken by another key than it was made with")
		}
		right := bytes.Clone(b)
		if len(b) == GreetingLen {
			SignHandshake(right, key)
		}
		if g.Get(b, key) == OK && !bytes.Equal(b, right) {
			t.Fatal("a greeting without a right code is taken")
		}
		if g.Get(right, key) != OK {
			return
		}
		again := make([]byte, GreetingLen)
		g.Put(again, key)
		var read Greeting
		if f := read.Get(again, key); f != OK {
			t.Fatalf("%x is written as %x: %v", right, again, f)
		}
		if read.Kind != g.Kind || read.Session != g.Session || read.TargetLife != g.TargetLife || read.Target != g.Target ||
			!bytes.Equal(read.Ticket, g.Ticket) || !bytes.Equal(read.Noise, g.Noise) {
			t.Fatalf("%+v is read as %+v", g, read)
		}
	})
}

//fuzz:inputs 60000
func FuzzTerms(f *testing.F) {
	sound := Terms{Session: 1, MaxPayload: MinPayload, Credits: 1, Express: 2, Joined: 3}
	f.Add(sound.Bytes())
	f.Add(sound.Bytes()[1:])
	f.Add(make([]byte, TermsLen))
	f.Fuzz(func(t *testing.T, b []byte) {
		var terms Terms
		if terms.Read(b) && !bytes.Equal(terms.Bytes(), b) {
			t.Errorf("%x is written as %x", b, terms.Bytes())
		}
	})
}
