package wire

import (
	"encoding/binary"

	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
)

// GreetingLen is the length of the payload of handshake frames where a job has a key.
const GreetingLen = codeAt + 8

const (
	targetLifeAt = HeaderLen + secure.TicketLen
	targetAt     = targetLifeAt + 8
	noiseAt      = targetAt + 8
	codeAt       = noiseAt + NoiseLen

	// NoiseLen is the length of a message of the handshake in a greeting.
	NoiseLen = secure.PointLen + TermsLen + secure.TagLen
	// PrologueLen is how many bytes of a greeting both ends of a handshake must have alike.
	PrologueLen = noiseAt - HeaderLen
)

// Greeting is a handshake frame where the job has a key: of KindHello, KindHelloAck or
// KindTicket. Its slices are parts of the frame.
type Greeting struct {
	Kind       Kind
	Session    uint64 // in KindHelloAck the id that the frame's receiver has chosen, else 0
	Ticket     []byte // of the sender
	TargetLife uint64 // the incarnation of the rank that is addressed
	Target     uint32 // that rank
	Noise      []byte // the message of the handshake; zeros in KindTicket
	Code       uint64 // made with a key of the job; two greetings with the same code are the same
}

// Put writes g to payload, which is GreetingLen long, with the code that key makes.
func (g *Greeting) Put(payload []byte, key *siphash.Key) {
	h := Header{Kind: g.Kind, Session: g.Session}
	h.Put(payload)
	le := binary.LittleEndian
	copy(payload[HeaderLen:targetLifeAt], g.Ticket)
	le.PutUint64(payload[targetLifeAt:], g.TargetLife)
	le.PutUint32(payload[targetAt:], g.Target)
	le.PutUint32(payload[targetAt+4:], 0)
	clear(payload[noiseAt:codeAt])
	copy(payload[noiseAt:codeAt], g.Noise)
	SignHandshake(payload, key)
	g.Code = le.Uint64(payload[codeAt:])
}

// Get reads g from payload, and looks whether the code is one that key makes. Nothing else of
// the payload is looked at before.
func (g *Greeting) Get(payload []byte, key *siphash.Key) Fault {
	if f := Form(payload); f != OK {
		return f
	}
	if len(payload) != GreetingLen {
		return BadFrame
	}
	le := binary.LittleEndian
	if g.Code = le.Uint64(payload[codeAt:]); g.Code != siphash.Sum64(key, payload[:codeAt]) {
		return BadCode
	}
	*g = Greeting{
		Kind: Kind(payload[5]), Session: le.Uint64(payload[8:]), Ticket: payload[HeaderLen:targetLifeAt],
		TargetLife: le.Uint64(payload[targetLifeAt:]), Target: le.Uint32(payload[targetAt:]),
		Noise: payload[noiseAt:codeAt], Code: g.Code,
	}
	if !IsHandshake(payload) || (g.Session != 0) != (g.Kind == KindHelloAck) {
		return BadFrame
	}
	return OK
}

// Prologue returns what both ends of a handshake must have alike: what its hello has before the
// handshake's message.
func Prologue(hello []byte) []byte { return hello[HeaderLen:noiseAt] }

// TermsLen is the length of Terms.
const TermsLen = 24

// termsAES is the flag of terms with AES.
const termsAES = 1

// Terms are what a rank tells its peer as part of a handshake.
type Terms struct {
	Session    uint64 // the id that the sender wants to see in frames addressed to it
	MaxPayload uint32 // largest UDP payload that the sender receives; it is below 2^16
	AES        bool   // the sender's processor computes AES
	Credits    uint32 // bundles of each class that the sender accepts in flight
	Express    uint32 // longest payload of KindExpress that the sender serves; 0: none
	Joined     uint32 // bytes in flight with FlagJoined that the sender accepts for each of its credits; 0: no such frames
}

// Bytes returns t as it travels.
func (t *Terms) Bytes() []byte {
	b := make([]byte, 0, TermsLen)
	le := binary.LittleEndian
	flags := uint16(0)
	if t.AES {
		flags = termsAES
	}
	b = le.AppendUint64(b, t.Session)
	b = le.AppendUint16(b, uint16(t.MaxPayload))
	b = le.AppendUint16(b, flags)
	b = le.AppendUint32(b, t.Credits)
	b = le.AppendUint32(b, t.Express)
	return le.AppendUint32(b, t.Joined)
}

// Read reads t from b, and reports whether it makes sense.
func (t *Terms) Read(b []byte) bool {
	if len(b) != TermsLen {
		return false
	}
	le := binary.LittleEndian
	flags := le.Uint16(b[10:])
	*t = Terms{
		Session: le.Uint64(b), MaxPayload: uint32(le.Uint16(b[8:])), AES: flags&termsAES != 0, Credits: le.Uint32(b[12:]),
		Express: le.Uint32(b[16:]), Joined: le.Uint32(b[20:]),
	}
	return flags&^termsAES == 0 && t.Session != 0 && t.MaxPayload >= MinPayload && t.Credits > 0
}
