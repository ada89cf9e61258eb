package wire

import (
	"encoding/binary"

	"github.com/xdprma/xdprma/internal/protocol/siphash"
)

// SignHandshake writes the code to the end of payload, which has GreetingLen bytes.
func SignHandshake(payload []byte, key *siphash.Key) {
	_ = payload[GreetingLen-1]
	binary.LittleEndian.PutUint64(payload[codeAt:], siphash.Sum64(key, payload[:codeAt]))
}

// IsHandshakeOf reports whether payload is a handshake frame by its form, and of the given job
// by what it says, where the job has no key. Nothing verifies the claim: a device looks here before
// it remembers the way back to the sender.
func IsHandshakeOf(job uint64, payload []byte) bool {
	return IsHandshake(payload) && payload[5] != byte(KindTicket) && len(payload) == HeaderLen+HelloLen &&
		binary.LittleEndian.Uint64(payload[HeaderLen:]) == job
}
