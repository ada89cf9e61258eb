package secure

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/hex"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func private(t testing.TB, text string) *ecdh.PrivateKey {
	t.Helper()
	k, err := ecdh.X25519().NewPrivateKey(unhex(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// pair is what both ends of a handshake have in tests.
type pair struct {
	initiator, responder           Ends
	initiatorFresh, responderFresh *ecdh.PrivateKey
}

// vectorPair has the keys of cacophony's vector for this handshake
// (https://github.com/haskell-cryptography/cacophony, vectors/cacophony.txt).
func vectorPair(t testing.TB) pair {
	a := private(t, "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1")
	b := private(t, "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893")
	psk := new([32]byte)
	copy(psk[:], unhex(t, "54686973206973206d7920417573747269616e20706572737065637469766521"))
	prologue := unhex(t, "4a6f686e2047616c74")
	return pair{
		initiator:      Ends{Prologue: prologue, PSK: psk, Static: a, Peer: b.PublicKey()},
		responder:      Ends{Prologue: prologue, PSK: psk, Static: b, Peer: a.PublicKey()},
		initiatorFresh: private(t, "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a"),
		responderFresh: private(t, "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b"),
	}
}

var (
	firstPayload  = []byte("Ludwig von Mises")
	secondPayload = []byte("Murray Rothbard")
)

// TestHandshakeVector compares both messages and the first frames under the keys that follow
// with the vector.
func TestHandshakeVector(t *testing.T) {
	p := vectorPair(t)
	i, first, err := Initiate(nil, p.initiator, p.initiatorFresh, firstPayload)
	if err != nil {
		t.Fatal(err)
	}
	if want := unhex(t, "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c79441f33bde990995eea7167375d6b68e2a7fa07887dd4f0f21023317d7b04fb0a67"); !bytes.Equal(first, want) {
		t.Errorf("the first message is %x, want %x", first, want)
	}
	r, payload, err := Respond(p.responder, first)
	if err != nil || !bytes.Equal(payload, firstPayload) {
		t.Fatalf("the first payload is %q, %v", payload, err)
	}
	second, at, err := r.Answer(nil, p.responderFresh, secondPayload)
	if err != nil {
		t.Fatal(err)
	}
	if want := unhex(t, "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843e3502578269a63176a4e59632b20df3393996180e261048266e49c0c0d9240"); !bytes.Equal(second, want) {
		t.Errorf("the second message is %x, want %x", second, want)
	}
	payload, chains, err := i.Finish(second)
	if err != nil || !bytes.Equal(payload, secondPayload) {
		t.Fatalf("the second payload is %q, %v", payload, err)
	}
	if chains.Send != at.Receive || chains.Receive != at.Send {
		t.Error("the ends have different keys")
	}
	nonce := make([]byte, 12)
	for _, m := range []struct {
		key           [32]byte
		plain, sealed string
	}{
		{chains.Send, "462e20412e20486179656b", "a08f4d4f142f605e9b30daa66784552576b30265889139b97f15cf"},
		{chains.Receive, "4361726c204d656e676572", "5871e43af881754e8ba7def42a69c23bfc9f7d47c3c1009f8ed986"},
	} {
		if got := newGCM(m.key[:]).Seal(nil, nonce, unhex(t, m.plain), nil); !bytes.Equal(got, unhex(t, m.sealed)) {
			t.Errorf("a message under the session's key is %x, want %s", got, m.sealed)
		}
	}
}

// TestHandshakeRefuses shows that no altered message is taken, and that the ends must agree on
// all that they know beforehand.
func TestHandshakeRefuses(t *testing.T) {
	p := vectorPair(t)
	i, first, _ := Initiate(nil, p.initiator, p.initiatorFresh, firstPayload)
	r, _, err := Respond(p.responder, first)
	if err != nil {
		t.Fatal(err)
	}
	second, want, _ := r.Answer(nil, p.responderFresh, secondPayload)
	for bit := range 8 * len(first) {
		if bit == 255 {
			continue // X25519 ignores it, and the hash does not: see below
		}
		if _, _, err := Respond(p.responder, flipped(first, bit)); err == nil {
			t.Fatalf("the first message is taken with bit %d flipped", bit)
		}
	}
	for bit := range 8 * len(second) {
		if _, _, err := i.Finish(flipped(second, bit)); err == nil {
			t.Fatalf("the second message is taken with bit %d flipped", bit)
		}
	}
	if _, _, err := Respond(p.responder, flipped(first, 255)); err == nil {
		t.Error("the first message is taken with another form of its point")
	}
	for n := range first {
		if _, _, err := Respond(p.responder, first[:n]); err == nil {
			t.Fatalf("%d bytes are taken for the first message", n)
		}
	}
	if _, _, err := Respond(p.initiator, first); err == nil {
		t.Error("the first message is taken when it comes back")
	}
	if _, _, err := i.Finish(first); err == nil {
		t.Error("the first message is taken for the second")
	}
	other := p.responder
	other.Prologue = []byte("another")
	if _, _, err := Respond(other, first); err == nil {
		t.Error("the first message is taken with another prologue")
	}
	other = p.responder
	other.PSK = new([32]byte)
	if _, _, err := Respond(other, first); err == nil {
		t.Error("the first message is taken with another shared key")
	}
	other = p.responder
	other.Peer = p.initiatorFresh.PublicKey()
	if _, _, err := Respond(other, first); err == nil {
		t.Error("the first message is taken for that of another rank")
	}
	// After all that, the genuine one is taken.
	if _, chains, err := i.Finish(second); err != nil || chains.Send != want.Receive {
		t.Errorf("the genuine answer is not taken after forged ones: %v", err)
	}
}

// TestSecretsOfHandshakesAreWiped looks at what both ends keep after the handshake, or when it was refused.
func TestSecretsOfHandshakesAreWiped(t *testing.T) {
	p := vectorPair(t)
	i, first, _ := Initiate(nil, p.initiator, p.initiatorFresh, firstPayload)
	r, _, err := Respond(p.responder, first)
	if err != nil {
		t.Fatal(err)
	}
	second, _, _ := r.Answer(nil, p.responderFresh, secondPayload)
	if r.state != (symmetric{}) {
		t.Error("the end that has answered keeps secrets")
	}
	i.Finish(flipped(second, 300))
	if i.state == (symmetric{}) {
		t.Fatal("a forged answer ends the handshake")
	}
	if _, _, err := i.Finish(second); err != nil || i.state != (symmetric{}) || i.ephemeral != nil {
		t.Errorf("the end that was answered keeps secrets, or %v", err)
	}
	if _, _, err := i.Finish(second); err == nil {
		t.Error("an answer is taken twice")
	}
}

// TestHandshakeWithZeroPoint shows that a point without a secret is refused.
func TestHandshakeWithZeroPoint(t *testing.T) {
	p := vectorPair(t)
	_, first, _ := Initiate(nil, p.initiator, p.initiatorFresh, firstPayload)
	clear(first[:PointLen])
	if _, _, err := Respond(p.responder, first); err == nil {
		t.Error("a first message with the point 0 is taken")
	}
}

func flipped(b []byte, bit int) []byte {
	b = bytes.Clone(b)
	b[bit/8] ^= 1 << (bit % 8)
	return b
}

//fuzz:inputs 20000
func FuzzHandshake(f *testing.F) {
	p := vectorPair(f)
	i, first, _ := Initiate(nil, p.initiator, p.initiatorFresh, firstPayload)
	f.Add(first)
	f.Add(first[:PointLen])
	f.Fuzz(func(t *testing.T, message []byte) {
		if _, _, err := Respond(p.responder, message); (err == nil) != bytes.Equal(message, first) {
			t.Errorf("%x: %v", message, err)
		}
		if _, _, err := i.Finish(message); err == nil {
			t.Errorf("%x is taken for the second message", message)
		}
	})
}

// BenchmarkHandshake measures what a handshake takes of each end, fresh keys included.
func BenchmarkHandshake(b *testing.B) {
	p := vectorPair(b)
	fresh := func() *ecdh.PrivateKey {
		k, err := ecdh.X25519().GenerateKey(rand.Reader)
		if err != nil {
			b.Fatal(err)
		}
		return k
	}
	_, first, _ := Initiate(nil, p.initiator, p.initiatorFresh, firstPayload)
	b.Run("point", func(b *testing.B) {
		for b.Loop() {
			p.initiator.Static.ECDH(p.initiator.Peer)
		}
	})
	b.Run("end that answers", func(b *testing.B) {
		for b.Loop() {
			r, _, _ := Respond(p.responder, first)
			r.Answer(nil, fresh(), secondPayload)
		}
	})
	b.Run("both ends", func(b *testing.B) {
		for b.Loop() {
			i, first, _ := Initiate(nil, p.initiator, fresh(), firstPayload)
			r, _, _ := Respond(p.responder, first)
			second, _, _ := r.Answer(nil, fresh(), secondPayload)
			if _, _, err := i.Finish(second); err != nil {
				b.Fatal(err)
			}
		}
	})
}
