// Package wire defines the frames that ranks exchange: the UDP payload's fixed
// header and the records that follow it. docs/wire.md is the reference. All
// fields are little-endian and naturally aligned, so that an XDP program reads
// them without a loop. Decoding never allocates and trusts nothing.
package wire

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// Fixed values of the header.
const (
	Magic     = 0x414d5258 // the bytes "XRMA"
	Version   = 5
	HeaderLen = 80
)

// Kind says what a frame is for.
type Kind uint8

// The kinds of frames.
const (
	KindHello    Kind = 1 // asks for a session; its session field is 0, as that of KindTicket, and no other
	KindHelloAck Kind = 2 // accepts one
	KindData     Kind = 3 // carries a bundle of records, reliably
	KindAck      Kind = 4 // carries acknowledgements alone
	KindReset    Kind = 5 // says that the session is dead at the sender
	KindExpress  Kind = 6 // carries requests that the target's XDP program may execute; see internal/protocol/link/express
	KindTicket   Kind = 7 // answers a hello for an earlier life of its sender; where handshakes are authenticated
)

// Flags of a frame.
const (
	FlagAckNow   uint8 = 1 << 0 // the sender waits: acknowledge without delay
	FlagOrdered  uint8 = 1 << 1 // apply in the order of the order field
	FlagResponse uint8 = 1 << 2 // the bundle holds responses: its sequence is of that class
	FlagAfterAll uint8 = 1 << 3 // apply only when every earlier request has been applied
	FlagUser     uint8 = 1 << 4 // of KindExpress alone: for user space, past the XDP program
	FlagJoined   uint8 = 1 << 5 // of KindData alone: sent to the peer's UDP socket, mostly joined with others
	FlagOfJoined uint8 = 1 << 6 // the acknowledgement is of packets with FlagJoined
	flagsKnown         = FlagAckNow | FlagOrdered | FlagResponse | FlagAfterAll | FlagJoined | FlagOfJoined
)

// Header is the decoded fixed part of a frame.
type Header struct {
	Kind         Kind
	Flags        uint8
	Session      uint64 // chosen by the receiver of the frame
	Checksum     uint32 // of the whole payload with this field as zero; see Checksum
	Credits      uint32 // bundles of each class that the sender accepts in flight
	Packet       uint64 // fresh for each transmission, from 1, with FlagJoined apart from others; 0 where nothing is acknowledged
	Sequence     uint64 // of the bundle within its class, stable over retransmission
	AckLargest   uint64 // largest packet number received, with or without FlagJoined, as FlagOfJoined says
	AckBits      uint64 // bit i: packet AckLargest-1-i was received
	AckRequests  uint64 // every request bundle below it has been applied
	AckResponses uint64 // every response bundle below it has been applied
	Order        uint32 // place among the ordered request bundles, where FlagOrdered is set
	Refusals     uint32 // refusal records sent in this session so far
}

// HeaderField describes one field of the header, for comparison with the C struct.
type HeaderField struct {
	Name         string
	Offset, Size int
}

// HeaderFields lists the header's fields in order.
var HeaderFields = []HeaderField{
	{"magic", 0, 4}, {"version", 4, 1}, {"kind", 5, 1}, {"flags", 6, 1}, {"reserved", 7, 1},
	{"session", 8, 8}, {"checksum", 16, 4}, {"credits", 20, 4}, {"packet_number", 24, 8},
	{"sequence", 32, 8}, {"ack_largest", 40, 8}, {"ack_bits", 48, 8}, {"ack_requests", 56, 8},
	{"ack_responses", 64, 8}, {"order", 72, 4}, {"refusals", 76, 4},
}

const checksumOffset = 16

// Checksum is what the frame's checksum is made with: the low half of XXH3-64.
func Checksum(b []byte) uint32 { return uint32(xxh3.Hash(b)) }

// checksum is that of b with the checksum field as zero, which it is afterwards.
func checksum(b []byte) uint32 {
	binary.LittleEndian.PutUint32(b[checksumOffset:], 0)
	return Checksum(b)
}

// Encode writes h to the start of b and then the checksum over all of b, which
// holds the complete payload of the frame.
func (h *Header) Encode(b []byte) {
	h.Put(b)
	h.Checksum = checksum(b)
	binary.LittleEndian.PutUint32(b[checksumOffset:], h.Checksum)
}

// Put writes h to the start of b with the checksum 0, for a frame that is signed.
func (h *Header) Put(b []byte) {
	_ = b[HeaderLen-1]
	le := binary.LittleEndian
	le.PutUint32(b[0:], Magic)
	b[4], b[5], b[6], b[7] = Version, byte(h.Kind), h.Flags, 0
	le.PutUint64(b[8:], h.Session)
	le.PutUint32(b[checksumOffset:], 0)
	le.PutUint32(b[20:], h.Credits)
	le.PutUint64(b[24:], h.Packet)
	le.PutUint64(b[32:], h.Sequence)
	le.PutUint64(b[40:], h.AckLargest)
	le.PutUint64(b[48:], h.AckBits)
	le.PutUint64(b[56:], h.AckRequests)
	le.PutUint64(b[64:], h.AckResponses)
	le.PutUint32(b[72:], h.Order)
	le.PutUint32(b[76:], h.Refusals)
}

// Fault says why a frame was not accepted; each is counted by its own name.
type Fault uint8

// The ways in which a frame is malformed.
const (
	OK          Fault = iota
	Short             // shorter than the header
	BadMagic          // not a frame of this protocol
	BadVersion        // of another version
	BadKind           // of an unknown kind
	BadFlags          // unknown flags or a non-zero reserved field
	BadChecksum       // damaged on the way
	BadRecord         // a record that does not fit its frame or has no meaning
	BadFrame          // fields that contradict each other
	BadCode           // a code that nobody with the key has made
	BadTag            // a tag that the peer of the session has not made
	Replayed          // a signed frame that has come before
	NumFaults         // how many there are
)

func (f Fault) String() string {
	return [NumFaults]string{"ok", "short", "magic", "version", "kind", "flags", "checksum", "record", "frame", "code", "tag", "replay"}[f]
}

// Decode does what Parse does, and verifies the checksum. It writes to b, and leaves it as it
// was.
func (h *Header) Decode(b []byte) Fault {
	if f := h.Parse(b); f != OK {
		return f
	}
	sum := checksum(b)
	binary.LittleEndian.PutUint32(b[checksumOffset:], h.Checksum)
	if h.Checksum != sum {
		return BadChecksum
	}
	return OK
}

// Form says whether b is long enough for a header, and has magic and version of one.
func Form(b []byte) Fault {
	switch {
	case len(b) < HeaderLen:
		return Short
	case binary.LittleEndian.Uint32(b) != Magic:
		return BadMagic
	case b[4] != Version:
		return BadVersion
	}
	return OK
}

// Parse reads the header of the payload b into h and verifies its form, version, kind and
// flags. KindExpress is of another layout: internal/protocol/link/express decodes it.
func (h *Header) Parse(b []byte) Fault {
	if f := Form(b); f != OK {
		return f
	}
	le := binary.LittleEndian
	switch {
	case b[5] < byte(KindHello) || b[5] > byte(KindReset):
		return BadKind
	case b[6]&^flagsKnown != 0 || b[7] != 0:
		return BadFlags
	}
	h.Kind, h.Flags = Kind(b[5]), b[6]
	h.Session = le.Uint64(b[8:])
	h.Checksum = le.Uint32(b[checksumOffset:])
	h.Credits = le.Uint32(b[20:])
	h.Packet = le.Uint64(b[24:])
	h.Sequence = le.Uint64(b[32:])
	h.AckLargest = le.Uint64(b[40:])
	h.AckBits = le.Uint64(b[48:])
	h.AckRequests = le.Uint64(b[56:])
	h.AckResponses = le.Uint64(b[64:])
	h.Order = le.Uint32(b[72:])
	h.Refusals = le.Uint32(b[76:])
	if (h.Session == 0) != (h.Kind == KindHello) || h.Flags&FlagJoined != 0 && h.Kind != KindData {
		return BadFrame
	}
	return OK
}

// IsHandshake reports whether payload claims to be a frame on which a device
// must remember the way back to the sender.
func IsHandshake(payload []byte) bool {
	return len(payload) >= HeaderLen && (payload[5] <= byte(KindHelloAck) || payload[5] == byte(KindTicket))
}
