package express

import (
	"bytes"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// FuzzDecode reads arbitrary frames, as they are and with a right code, as the peer would make
// it. Nothing is taken without the code, what is taken is written as it was read, and its records
// lie within it.
//
//fuzz:inputs 120000
func FuzzDecode(f *testing.F) {
	key := &siphash.Key{1}
	for _, h := range []Header{
		{Session: session, Exchange: 1, Try: 1, Records: 1},
		{Session: session, Exchange: MaxExchange, Try: 1 << 63, Records: MaxRecords, Flags: wire.FlagUser, Ordered: true},
		{Session: session, Exchange: 1, Try: 1, Flags: wire.FlagResponse, Fate: 6},
	} {
		b := make([]byte, wire.HeaderLen+wire.RecordSize(8))
		wire.PutRecord(b[wire.HeaderLen:], &wire.Record{Code: wire.CodePut, Window: 1}, 8)
		Request(b, h, key)
		f.Add(b)
	}
	f.Add(make([]byte, wire.HeaderLen))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		if _, _, fault := Decode(b, &siphash.Key{2}); fault == wire.OK {
			t.Fatal("a frame is taken by another key than it was made with")
		}
		right := bytes.Clone(b)
		if len(b) >= wire.HeaderLen {
			Sign(right, key)
		}
		if _, _, fault := Decode(b, key); fault == wire.OK && !bytes.Equal(b, right) {
			t.Fatal("a frame without a right code is taken")
		}
		if !bytes.Equal(b, before) {
			t.Fatalf("%x became %x", before, b)
		}
		h, body, fault := Decode(right, key)
		if fault != wire.OK {
			return
		}
		again := bytes.Clone(right)
		Request(again, h, key)
		if !bytes.Equal(again, right) {
			t.Fatalf("%x is written as %x", right, again)
		}
		if records, ok := Records(body, h.Records); ok && len(records) > len(body) {
			t.Fatalf("%d bytes of records in %d", len(records), len(body))
		}
	})
}
