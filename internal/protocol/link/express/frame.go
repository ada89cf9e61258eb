package express

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

var le = binary.LittleEndian

// The fates that an answer tells of. Any other even one is FateDone but for the records
// whose bits are set, from bit 1 for the second on: their window went away after the first
// record had taken effect. Their results mean nothing.
const (
	FateDone  uint8 = 0 // executed; the results follow
	FateTaken uint8 = 1 // taken as the request bundle that it would have been
)

// Header is the decoded header of a frame of the tier. Frames use the fields of
// wire.Header, some of them for another purpose.
type Header struct {
	Session  uint64 // chosen by the receiver of the frame
	Exchange uint64 // number of the exchange in its session and direction, from 1
	Try      uint64 // number of this transmission, from 1; an answer has that of its request
	Records  int    // in requests: how many
	Flags    uint8  // wire.FlagResponse of answers, wire.FlagUser of requests
	Fate     uint8  // in answers
	Ordered  bool   // in requests: the bundle would have been ordered
	User     bool   // in answers: user space has made it, and not the program
}

const (
	fateAt     = 7
	checksumAt = 16
	creditsAt  = 20
	codeAt     = 40 // the field ack_largest
)

// MaxExchange is the last number of an exchange.
const MaxExchange = 1<<62 - 1

// Request writes h, a request's or an answer's, to the start of payload, and then signs all
// of it. It writes whole words, as the checksum reads them: a processor waits where a word that it
// reads has just been written in pieces.
func Request(payload []byte, h Header, key *siphash.Key) {
	head := (*[wire.HeaderLen]byte)(payload)
	le.PutUint64(head[0:], wire.Magic|uint64(wire.Version)<<32|uint64(wire.KindExpress)<<40|uint64(h.Flags)<<48|uint64(h.Fate)<<56)
	le.PutUint64(head[8:], h.Session)
	le.PutUint64(head[checksumAt:], uint64(h.Records)<<32)
	le.PutUint64(head[24:], h.Try)
	le.PutUint64(head[32:], h.Exchange)
	clear(head[codeAt:72])
	order := uint64(0)
	if h.Ordered || h.User {
		order = 1
	}
	le.PutUint64(head[72:], order)
	sign(payload, key)
}

// Sign writes the code of payload by a key; without one, the checksum.
func Sign(payload []byte, key *siphash.Key) {
	le.PutUint32(payload[checksumAt:], 0)
	le.PutUint64(payload[codeAt:], 0)
	sign(payload, key)
}

// sign is Sign where both fields are zero.
func sign(payload []byte, key *siphash.Key) {
	if key != nil {
		le.PutUint64(payload[codeAt:], siphash.Sum64(key, payload))
	} else {
		le.PutUint32(payload[checksumAt:], uint32(xxhash.Sum64(payload)))
	}
}

// Checksum returns the checksum of payload, whose field of it counts as zero.
func Checksum(payload []byte) uint32 {
	field := payload[checksumAt : checksumAt+4]
	old := le.Uint32(field)
	le.PutUint32(field, 0)
	sum := uint32(xxhash.Sum64(payload))
	le.PutUint32(field, old)
	return sum
}

// Decode does what Read and Verify do, for those who know the key before they look.
func Decode(payload []byte, key *siphash.Key) (h Header, body []byte, f wire.Fault) {
	if h, body, f = Read(payload); f == wire.OK {
		f = Verify(payload, key)
	}
	if f != wire.OK {
		body = nil
	}
	return h, body, f
}

// Verify says whether payload, which Read has read, came as it was sent: by its code, of which
// nobody makes a right one without the key; without a key, by its checksum. It writes to
// payload, and leaves it as it was.
func Verify(payload []byte, key *siphash.Key) wire.Fault {
	sum, code := le.Uint32(payload[checksumAt:]), le.Uint64(payload[codeAt:])
	if key == nil {
		switch {
		case code != 0:
			return wire.BadFrame
		case sum != Checksum(payload):
			return wire.BadChecksum
		}
		return wire.OK
	}
	le.PutUint64(payload[codeAt:], 0)
	want := siphash.Sum64(key, payload)
	le.PutUint64(payload[codeAt:], code)
	if sum != 0 || code != want {
		return wire.BadCode
	}
	return wire.OK
}

// Read reads the header of a frame of the tier and verifies its form. body is what follows the
// header: of a request the records, see Records; of an answer the results.
func Read(payload []byte) (h Header, body []byte, f wire.Fault) {
	if len(payload) < wire.HeaderLen {
		return h, nil, wire.Short
	}
	switch {
	case le.Uint32(payload) != wire.Magic:
		return h, nil, wire.BadMagic
	case payload[4] != wire.Version:
		return h, nil, wire.BadVersion
	case payload[5] != byte(wire.KindExpress):
		return h, nil, wire.BadKind
	case payload[6] != 0 && payload[6] != wire.FlagUser && payload[6] != wire.FlagResponse:
		return h, nil, wire.BadFlags
	case len(payload) > MaxPayload || len(payload)%8 != 0:
		return h, nil, wire.BadFrame
	}
	credits, order := le.Uint32(payload[creditsAt:]), le.Uint32(payload[72:])
	h = Header{
		Flags: payload[6], Fate: payload[fateAt],
		Session: le.Uint64(payload[8:]), Try: le.Uint64(payload[24:]), Exchange: le.Uint64(payload[32:]),
	}
	body = payload[wire.HeaderLen:]
	sound := h.Session != 0 && h.Try != 0 && h.Exchange-1 < MaxExchange && le.Uint32(payload[76:]) == 0 &&
		le.Uint64(payload[48:])|le.Uint64(payload[56:])|le.Uint64(payload[64:]) == 0
	if h.Flags == wire.FlagResponse {
		h.User = order != 0
		taken := h.Fate == FateTaken && len(body) == 0
		sound = sound && (taken || h.Fate&FateTaken == 0) && credits == 0 && order <= 1
	} else {
		h.Records, h.Ordered = int(credits), order != 0
		sound = sound && h.Fate == 0 && credits-1 < MaxRecords && order <= 1
	}
	if !sound {
		return h, nil, wire.BadFrame
	}
	return h, body, wire.OK
}

// Records returns the n records at the start of a request's body, without the room for
// results that may follow. It returns false if there are not as many.
func Records(body []byte, n int) ([]byte, bool) {
	end := 0
	for range n {
		var r wire.Record
		size := wire.NextRecord(body[end:], &r)
		if size == 0 {
			return nil, false
		}
		end += size
	}
	return body[:end], true
}

// Padded returns n rounded up to a multiple of 8.
func Padded(n int) int { return (n + 7) &^ 7 }

// PayloadLen returns the length of the payload of a request with so many bytes of records
// and of results.
func PayloadLen(records, results int) int { return wire.HeaderLen + max(records, results) }
