package secure

import (
	"cmp"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

const (
	// TrailerLen is how many bytes the protection of a frame takes behind its payload: its
	// tag, and then its number.
	TrailerLen = TagLen + numberLen

	numberLen = 8

	// epochBits is Bounds.EpochBits outside tests. AES-GCM keeps its
	// bounds for more frames of 9 KB than that (RFC 9001, appendix B), and so does
	// ChaCha20-Poly1305. Frames of 64 KB, which loopback alone has, take AES-GCM to twice those blocks.
	epochBits = 24

	// keepFormer is how long frames under the former key are accepted after the first one
	// under the present key, in nanoseconds.
	keepFormer = int64(10e9)
)

// Guard protects the frames of one session to its peer, and checks those from it. Each frame has
// a number of its own in its direction, which is the nonce. The number's high bits are the
// epoch: each epoch has its key, derived from that before it, which is then forgotten.
//
// A chain is overwritten with the one that follows, and Close overwrites the last ones. Ciphers are let go
// of, and cannot be wiped: crypto/aes and chacha20poly1305 keep copies of their keys, expanded or not, until the
// collector has the memory used again. Neither can what HKDF computes in between.
type Guard struct {
	suite Suite
	bits  uint8 // of a number, that count within one key
	out   outward
	in    inward

	// The nonces lie here, and not on the stack, since a cipher is called by its interface.
	nonceOut, nonceIn [12]byte
}

type outward struct {
	number  uint64 // of the next frame
	renewed uint64 // the epoch that Renew has last known of
	chain   [32]byte
	aead    cipher.AEAD
	former  []epochKey // that Unseal may need, oldest first
}

// epochKey is the key of an epoch that is over.
type epochKey struct {
	epoch uint64
	aead  cipher.AEAD
}

type inward struct {
	epoch   uint64
	chain   [32]byte // of the epoch
	present cipher.AEAD
	former  cipher.AEAD // of the epoch before; nil: none
	next    cipher.AEAD // of the epoch after; nil: not derived yet
	began   int64       // when the first frame of the epoch came
	forged  uint64      // frames with a wrong tag, under all keys
	seen    window
}

// NewGuard returns the guard of a session with the keys of its handshake, which it copies.
func NewGuard(c *Chains, s Suite) *Guard {
	return &Guard{
		suite: s,
		bits:  cmp.Or(s.Bounds.EpochBits, epochBits),
		out:   outward{chain: c.Send, aead: s.key(&c.Send)},
		in:    inward{chain: c.Receive, present: s.key(&c.Receive)},
	}
}

// epoch returns the epoch of a number.
func (g *Guard) epoch(number uint64) uint64 { return number >> (g.bits & 63) }

// begins reports whether a number is the first of its epoch.
func (g *Guard) begins(number uint64) bool { return number&(1<<(g.bits&63)-1) == 0 }

// expand derives n bytes from a chain's key.
func expand(chain *[32]byte, label string, n int) []byte {
	b, err := hkdf.Expand(sha256.New, chain[:], label, n)
	if err != nil {
		panic(err)
	}
	return b
}

// goOn puts the chain that follows in place of chain.
func goOn(chain *[32]byte) {
	next := expand(chain, "next", len(chain))
	copy(chain[:], next)
	clear(next)
}

// Seal writes tag and number into the last TrailerLen bytes of frame, which are free for them,
// and encrypts what is before them and not in clear. It reports whether the next frame begins
// an epoch.
func (g *Guard) Seal(frame []byte) (renewed bool) {
	o := &g.out
	at := len(frame) - TrailerLen
	clear := g.suite.clear(at)
	binary.LittleEndian.PutUint64(frame[at+TagLen:], o.number)
	binary.LittleEndian.PutUint64(g.nonceOut[4:], o.number)
	o.aead.Seal(frame[clear:clear], g.nonceOut[:], frame[clear:at], frame[:clear])
	if o.number++; g.begins(o.number) {
		g.advance(g.epoch(o.number) - 1)
		return true
	}
	return false
}

// advance goes on from an epoch to the next one.
func (g *Guard) advance(from uint64) {
	o := &g.out
	if g.Encrypts() {
		o.former = append(o.former, epochKey{from, o.aead})
	}
	goOn(&o.chain)
	o.aead = g.suite.key(&o.chain)
}

// Encrypts reports whether Seal encrypts frames. Such a frame is opened by Unseal before it is
// sealed again.
func (g *Guard) Encrypts() bool { return g.suite.Level >= Seal }

// Unseal makes a frame what it was before Seal, except for the trailer. It reports whether the
// frame is as Seal has left it.
func (g *Guard) Unseal(frame []byte) bool {
	at, number := len(frame)-TrailerLen, Number(frame)
	aead := g.out.aead
	if epoch := g.epoch(number); epoch != g.epoch(g.out.number) {
		i := slices.IndexFunc(g.out.former, func(k epochKey) bool { return k.epoch == epoch })
		if i < 0 {
			return false
		}
		aead = g.out.former[i].aead
	}
	clear := g.suite.clear(at)
	binary.LittleEndian.PutUint64(g.nonceOut[4:], number)
	_, err := aead.Open(frame[clear:clear], g.nonceOut[:], frame[clear:at+TagLen], frame[:clear])
	return err == nil
}

// Forget drops the keys of epochs before that of a number: nothing that they have sealed is to be
// opened any more.
func (g *Guard) Forget(before uint64) {
	g.out.former = slices.DeleteFunc(g.out.former, func(k epochKey) bool { return k.epoch < g.epoch(before) })
}

// Number returns the number of a frame that has one.
func Number(frame []byte) uint64 { return binary.LittleEndian.Uint64(frame[len(frame)-numberLen:]) }

// Renew has the next frame begin an epoch. The peer must have had a frame of the present one since
// the last call: it accepts those of the next epoch alone. If the numbers have run into another
// epoch since then, its key is a new one, and the peer may lack all its frames: then Renew leaves
// it at that.
func (g *Guard) Renew() {
	o := &g.out
	if g.epoch(o.number) == o.renewed && !g.begins(o.number) {
		g.advance(o.renewed)
		o.number = (o.renewed + 1) << g.bits
	}
	o.renewed = g.epoch(o.number)
}

// Sealed returns how many numbers have been used up, counting those that Renew passed over.
func (g *Guard) Sealed() uint64 { return g.out.number }

// Verdict is what a guard finds out about a frame.
type Verdict uint8

// The verdicts.
const (
	Genuine  Verdict = iota
	Replayed         // its number has come before, or is too old to know
	Forged           // not from the peer, or altered
	Worn             // likewise, and one too many: nothing is accepted any more, and the session must end
)

// Open checks a frame that has come at the time now, in nanoseconds, and returns what is
// before its trailer, decrypted where it lies. It takes nothing in of one that is not genuine, which
// may be altered then.
func (g *Guard) Open(frame []byte, now int64) ([]byte, Verdict) {
	at := len(frame) - TrailerLen
	if at < 0 {
		return nil, Forged
	}
	in := &g.in
	number := Number(frame)
	if !in.seen.fresh(number) {
		return nil, Replayed
	}
	epoch := g.epoch(number)
	aead := in.key(epoch, now, g.suite)
	if aead == nil {
		return nil, Forged
	}
	clear := g.suite.clear(at)
	binary.LittleEndian.PutUint64(g.nonceIn[4:], number)
	if _, err := aead.Open(frame[clear:clear], g.nonceIn[:], frame[clear:at+TagLen], frame[:clear]); err != nil {
		return nil, g.refuse()
	}
	in.seen.mark(number)
	if epoch > in.epoch {
		in.advance(now)
	}
	return frame[:at], Genuine
}

// refuse counts a frame with a wrong tag. After too many of them one could pass: then the keys go.
func (g *Guard) refuse() Verdict {
	in := &g.in
	if in.forged++; in.forged < g.suite.mostForged() {
		return Forged
	}
	in.drop()
	return Worn
}

// drop forgets all keys: nothing is accepted any more.
func (in *inward) drop() {
	clear(in.chain[:])
	in.former, in.present, in.next = nil, nil, nil
}

// Close forgets all keys of the session. Afterwards g accepts nothing, and what it seals is not to be sent.
func (g *Guard) Close() {
	g.in.drop()
	clear(g.out.chain[:])
	g.out.aead, g.out.former = noCipher{}, nil
}

// noCipher protects nothing, and opens nothing.
type noCipher struct{}

func (noCipher) NonceSize() int                         { return 12 }
func (noCipher) Overhead() int                          { return TagLen }
func (noCipher) Seal(dst, _, plain, _ []byte) []byte    { return append(dst, plain...) }
func (noCipher) Open(_, _, _, _ []byte) ([]byte, error) { return nil, ErrForged }

// FormerUntil returns until when frames under the former key are accepted, in nanoseconds; 0: there is none.
func (g *Guard) FormerUntil() int64 {
	if g.in.former == nil {
		return 0
	}
	return g.in.began + keepFormer
}

// DropFormer has frames under the former key not be accepted any more.
func (g *Guard) DropFormer() { g.in.former = nil }

// key returns the key of an epoch, or nil where there is none.
func (in *inward) key(epoch uint64, now int64, suite Suite) cipher.AEAD {
	if in.former != nil && now-in.began > keepFormer {
		in.former = nil
	}
	switch epoch {
	case in.epoch:
		return in.present
	case in.epoch + 1:
		if in.next == nil && in.present != nil { // once, however many frames claim to be of it
			next := in.chain
			goOn(&next)
			in.next = suite.key(&next)
			clear(next[:])
		}
		return in.next
	case in.epoch - 1:
		return in.former
	}
	return nil
}

func (in *inward) advance(now int64) {
	in.epoch++
	goOn(&in.chain)
	in.former, in.present, in.next = in.present, in.next, nil
	in.began = now
}

// Span is how many numbers before the largest one that has come a guard accepts at least.
const Span = 64 * (windowWords - 1)

const windowWords = 65

// window knows which numbers have come (RFC 6479).
type window struct {
	next  uint64 // one more than the largest
	words [windowWords]uint64
}

// fresh reports whether a number has not come, as far as that is known.
func (w *window) fresh(number uint64) bool {
	if number >= w.next {
		return true
	}
	if (w.next-1)>>6-number>>6 >= windowWords {
		return false
	}
	return w.words[number>>6%windowWords]&(1<<(number&63)) == 0
}

// mark takes in that a fresh number has come.
func (w *window) mark(number uint64) {
	if number >= w.next {
		from := uint64(0) // the first word that has nothing in it yet
		if w.next > 0 {
			from = (w.next-1)>>6 + 1
		}
		to := number >> 6
		if to+1 > windowWords && from < to+1-windowWords {
			from = to + 1 - windowWords
		}
		for ; from <= to; from++ {
			w.words[from%windowWords] = 0
		}
		w.next = number + 1
	}
	w.words[number>>6%windowWords] |= 1 << (number & 63)
}

// Wipe overwrites the keys.
func (c *Chains) Wipe() { *c = Chains{} }

// ExpressKeys are the keys of the codes of express frames, each of one kind in one direction.
type ExpressKeys struct {
	Requests, Answers struct{ Sent, Received [16]byte }
}

// Express derives the keys of express frames.
func (c *Chains) Express() (k ExpressKeys) {
	for _, x := range [...]struct {
		to    *[16]byte
		chain *[32]byte
		label string
	}{
		{&k.Requests.Sent, &c.Send, "express request"}, {&k.Answers.Sent, &c.Send, "express answer"},
		{&k.Requests.Received, &c.Receive, "express request"}, {&k.Answers.Received, &c.Receive, "express answer"},
	} {
		key := expand(x.chain, x.label, len(x.to))
		copy(x.to[:], key)
		clear(key)
	}
	return k
}

// Wipe overwrites the keys.
func (k *ExpressKeys) Wipe() { *k = ExpressKeys{} }
