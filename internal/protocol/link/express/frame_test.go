package express

import (
	"bytes"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// A frame is accepted with the key that it was made with, and with no other. No bit of it can
// be changed.
func TestFramesAreSigned(t *testing.T) {
	keys := map[string]*siphash.Key{"none": nil, "one": {1}, "another": {2}}
	for made, key := range keys {
		frame := make([]byte, wire.HeaderLen+32)
		want := Header{Session: 5, Exchange: 7, Try: 2, Records: 1, Ordered: true}
		Request(frame, want, key)
		before := bytes.Clone(frame)
		for looked, other := range keys {
			h, body, fault := Decode(frame, other)
			switch {
			case made == looked:
				if fault != wire.OK || h != want || len(body) != 32 {
					t.Errorf("key %s: %v, %+v, %d bytes", made, fault, h, len(body))
				}
			case other == nil:
				if fault != wire.BadFrame || body != nil {
					t.Errorf("made with key %s and taken without: %v", made, fault)
				}
			case fault != wire.BadCode || body != nil:
				t.Errorf("made with key %s and taken with %s: %v", made, looked, fault)
			}
		}
		for bit := range 8 * len(frame) {
			frame[bit/8] ^= 1 << (bit % 8)
			if _, body, fault := Decode(frame, key); fault == wire.OK || body != nil {
				t.Errorf("key %s: bit %d was changed, and nobody noticed", made, bit)
			}
			frame[bit/8] ^= 1 << (bit % 8)
		}
		if !bytes.Equal(frame, before) {
			t.Errorf("key %s: the frame was changed", made)
		}
	}
}

// A slot with keys answers with the code of answers, and one that is opened anew without keys
// with a checksum.
func TestAnswersAreSigned(t *testing.T) {
	tables, frame := HeapTables(1), make([]byte, MaxPayload)
	keys := &Keys{Requests: siphash.Key{1}, Answers: siphash.Key{2}}
	for _, keys := range []*Keys{keys, nil} {
		tables.OpenSlot(0, Slot{Session: session, PeerSession: peerSession, Keys: keys})
		tables.Claim(0, 1)
		tables.PublishTaken(0, 1)
		var requests, answers *siphash.Key
		if keys != nil {
			requests, answers = &keys.Requests, &keys.Answers
		}
		n := tables.Answer(0, frame, &Header{Exchange: 1, Try: 1}, false)
		if _, _, fault := Decode(frame[:n], answers); fault != wire.OK {
			t.Errorf("keys %v: the answer has the fault %v", keys, fault)
		}
		switch got := tables.RequestKey(0); {
		case (got == nil) != (requests == nil), got != nil && *got != *requests:
			t.Errorf("requests have the key %v, want %v", got, requests)
		}
	}
}
