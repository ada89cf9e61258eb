package wire

import "encoding/binary"

// HelloLen is the length of the body of KindHello and KindHelloAck.
const HelloLen = 64

// Hello is the body of both handshake frames.
type Hello struct {
	Job         uint64 // identifies the job; a frame of another job is refused
	Incarnation uint64 // grows with each restart of the sending rank
	Peer        uint64 // the incarnation of the receiver that the sender knows, or 0
	Session     uint64 // the id that the sender wants to see in frames addressed to it
	Rank        uint32 // of the sender
	Target      uint32 // the rank that is addressed
	MaxPayload  uint32 // largest UDP payload that the sender receives
	Credits     uint32 // bundles of each class that the sender accepts in flight
	Echo        uint64 // in KindHelloAck: the Session of the hello that is answered
	Express     uint32 // longest payload of KindExpress that the sender serves; 0: none
	Joined      uint32 // bytes in flight with FlagJoined that the sender accepts for each of its credits; 0: no such frames
}

// Terms returns the part of h that Greeting has under the keys of the handshake.
func (h *Hello) Terms() Terms {
	return Terms{Session: h.Session, MaxPayload: h.MaxPayload, Credits: h.Credits, Express: h.Express, Joined: h.Joined}
}

// Encode writes h to b, which has room for HelloLen bytes.
func (h *Hello) Encode(b []byte) {
	_ = b[HelloLen-1]
	le := binary.LittleEndian
	le.PutUint64(b[0:], h.Job)
	le.PutUint64(b[8:], h.Incarnation)
	le.PutUint64(b[16:], h.Peer)
	le.PutUint64(b[24:], h.Session)
	le.PutUint32(b[32:], h.Rank)
	le.PutUint32(b[36:], h.Target)
	le.PutUint32(b[40:], h.MaxPayload)
	le.PutUint32(b[44:], h.Credits)
	le.PutUint64(b[48:], h.Echo)
	le.PutUint32(b[56:], h.Express)
	le.PutUint32(b[60:], h.Joined)
}

// Decode reads h from b and reports whether b has the right length and the
// fields make sense by themselves.
func (h *Hello) Decode(b []byte) bool {
	if len(b) != HelloLen {
		return false
	}
	le := binary.LittleEndian
	h.Job = le.Uint64(b[0:])
	h.Incarnation = le.Uint64(b[8:])
	h.Peer = le.Uint64(b[16:])
	h.Session = le.Uint64(b[24:])
	h.Rank = le.Uint32(b[32:])
	h.Target = le.Uint32(b[36:])
	h.MaxPayload = le.Uint32(b[40:])
	h.Credits = le.Uint32(b[44:])
	h.Echo = le.Uint64(b[48:])
	h.Express = le.Uint32(b[56:])
	h.Joined = le.Uint32(b[60:])
	return h.Session != 0 && h.Incarnation != 0 && h.MaxPayload >= MinPayload && h.Credits > 0
}

// MinPayload is the smallest UDP payload that every rank must be able to
// receive: what the smallest MTU of IPv6 leaves.
const MinPayload = 1280 - 40 - 8
