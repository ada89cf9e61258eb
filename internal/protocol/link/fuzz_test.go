package link_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// FuzzReceiveFromStranger brings arbitrary frames to a rank of a job that signs, from somebody who
// has seen all its frames and lacks its key: as they are, and with the session's id. Nothing of
// that has an effect, and the session goes on. A first byte says how long a frame is, in units of
// eight bytes, and whether it gets the id; there are several in an input.
//
//fuzz:inputs 4000
func FuzzReceiveFromStranger(f *testing.F) {
	const withID = 0x80
	met := newMembers(f, 2, secure.Sign, nil)
	tape := met.taped(nil)
	met.transfer(met.dial(0, 1), 0, 100)
	for _, m := range *tape {
		if n := len(m.payload) / 8; m.to == 1 && n < withID {
			f.Add(append([]byte{byte(n)}, m.payload...))
			f.Add(append([]byte{byte(n)}, m.payload[:8*n-1]...))
			changed := bytes.Clone(m.payload)
			changed[5] ^= 7 // the kind
			f.Add(append([]byte{byte(n) | withID}, changed...))
			changed = bytes.Clone(m.payload)
			changed[len(changed)-8] = 90 // a number that has not come
			f.Add(append([]byte{byte(n) | withID}, changed...))
		}
	}
	for kind := wire.KindHello; kind <= wire.KindTicket; kind++ {
		b := make([]byte, wire.HeaderLen+secure.TrailerLen)
		h := wire.Header{Kind: kind, Packet: 1, Sequence: 1}
		h.Encode(b)
		b[len(b)-8] = 90 // a number that has not come
		f.Add(append([]byte{byte(len(b)/8) | withID}, b...))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		f := newMembers(t, 2, secure.Sign, nil)
		p := f.dial(0, 1)
		f.transfer(p, 0, 100)
		before := f.quiet(1)
		id := p.PeerID()
		for frames := 0; len(input) > 0 && frames < 64; frames++ {
			n := min(8*int(input[0]&^withID), len(input)-1)
			b := bytes.Clone(input[1 : 1+n])
			if input[0]&withID != 0 && n >= 16 {
				binary.LittleEndian.PutUint64(b[8:], id)
			}
			input = input[1+n:]
			f.e[1].Receive(b, link.PathID(0))
			f.Settle()
		}
		if after := f.quiet(1); after != before {
			t.Fatalf("the rank has changed:\n%s\n%s", before, after)
		}
		f.transfer(p, 0, 100)
	})
}
