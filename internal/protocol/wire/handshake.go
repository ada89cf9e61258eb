package wire

import (
	"encoding/binary"

	"github.com/xdprma/xdprma/internal/protocol/siphash"
)

// Where things are in such a payload.
const (
	ticketAt        = HeaderLen // of the sender; it begins with the job
	ticketPortAt    = ticketAt + 20
	ticketAddressAt = ticketAt + 24
)

// SignHandshake writes the code to the end of payload, which has GreetingLen bytes.
func SignHandshake(payload []byte, key *siphash.Key) {
	_ = payload[GreetingLen-1]
	binary.LittleEndian.PutUint64(payload[codeAt:], siphash.Sum64(key, payload[:codeAt]))
}

// IsHandshakeOf reports whether a device is to remember the way back to the sender of payload,
// which came from an address, that of IPv4 as ::ffff:a.b.c.d. That is so if payload is a handshake
// frame by its form, and of the given job; 0 stands for any job. Without a key nothing verifies
// that. With one, the code proves that a member of the job has made the frame, and the sender's
// ticket in it has to name the address: others can send a captured one from elsewhere.
func IsHandshakeOf(job uint64, key *siphash.Key, payload []byte, address [16]byte, port uint16) bool {
	le := binary.LittleEndian
	if key == nil {
		return IsHandshake(payload) && payload[5] != byte(KindTicket) &&
			(job == 0 || len(payload) == HeaderLen+HelloLen && le.Uint64(payload[HeaderLen:]) == job)
	}
	return IsHandshake(payload) && len(payload) == GreetingLen &&
		(job == 0 || le.Uint64(payload[ticketAt:]) == job) &&
		le.Uint16(payload[ticketPortAt:]) == port && [16]byte(payload[ticketAddressAt:][:16]) == address &&
		le.Uint64(payload[codeAt:]) == siphash.Sum64(key, payload[:codeAt])
}
