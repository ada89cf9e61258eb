package wire

import (
	"encoding/binary"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/siphash"
)

// A device remembers the way back to a member of the job with its key, at the address of its
// ticket, and to nobody else.
func TestIsHandshakeOf(t *testing.T) {
	const job, port = 0x1122334455667788, 7770
	key, address := siphash.Key{1}, [16]byte{10: 0xff, 11: 0xff, 12: 10, 15: 2}
	signed := func(kind Kind, change func(b []byte)) []byte {
		b := make([]byte, GreetingLen)
		(&Header{Kind: kind, Session: 1}).Encode(b[:HeaderLen])
		binary.LittleEndian.PutUint64(b[80:], job)
		binary.LittleEndian.PutUint16(b[100:], port)
		copy(b[104:], address[:])
		if change != nil {
			change(b)
		}
		SignHandshake(b, &key)
		return b
	}
	plain := make([]byte, HeaderLen+HelloLen)
	(&Hello{Job: job}).Encode(plain[HeaderLen:])
	(&Header{Kind: KindHello}).Encode(plain)
	hello := signed(KindHello, nil)
	for _, tt := range []struct {
		name    string
		key     *siphash.Key
		payload []byte
		want    bool
	}{
		{"hello", &key, hello, true},
		{"hello-ack", &key, signed(KindHelloAck, nil), true},
		{"ticket", &key, signed(KindTicket, nil), true},
		{"data", &key, signed(KindData, nil), false},
		{"another job", &key, signed(KindHello, func(b []byte) { b[80]++ }), false},
		{"another address", &key, signed(KindHello, func(b []byte) { b[119]++ }), false},
		{"another port", &key, signed(KindHello, func(b []byte) { b[100]++ }), false},
		{"another key", &siphash.Key{2}, hello, false},
		{"too short", &key, hello[:GreetingLen-1], false},
		{"without a code", &key, plain, false},
		{"without a key", nil, plain, true},
		{"with a code where there is no key", nil, hello, false},
		{"ticket where there is no key", nil, append([]byte(nil), append(plain[:5:5], append([]byte{byte(KindTicket)}, plain[6:]...)...)...), false},
	} {
		if got := IsHandshakeOf(job, tt.key, tt.payload, address, port); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	for bit := range 8 * len(hello) {
		hello[bit/8] ^= 1 << (bit % 8)
		if IsHandshakeOf(job, &key, hello, address, port) {
			t.Errorf("bit %d was changed, and nobody noticed", bit)
		}
		hello[bit/8] ^= 1 << (bit % 8)
	}
}
