package wire

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

func TestHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u64, u32 := rapid.Uint64(), rapid.Uint32()
		h := Header{
			Kind: Kind(rapid.IntRange(1, 5).Draw(t, "kind")), Flags: uint8(rapid.IntRange(0, 15).Draw(t, "flags")),
			Session: rapid.Uint64Min(1).Draw(t, "session"), Credits: u32.Draw(t, "credits"), Packet: u64.Draw(t, "packet"),
			Sequence: u64.Draw(t, "seq"), AckLargest: u64.Draw(t, "largest"), AckBits: u64.Draw(t, "bits"),
			AckRequests: u64.Draw(t, "requests"), AckResponses: u64.Draw(t, "responses"), Order: u32.Draw(t, "order"), Refusals: u32.Draw(t, "refusals"),
		}
		if h.Kind == KindHello {
			h.Session = 0
		}
		b := append(make([]byte, HeaderLen), rapid.SliceOf(rapid.Byte()).Draw(t, "body")...)
		h.Encode(b)
		var got Header
		if f := got.Decode(b); f != OK || got != h {
			t.Fatalf("%v: %+v, want %+v", f, got, h)
		}
		bit := rapid.IntRange(0, len(b)*8-1).Draw(t, "bit")
		b[bit/8] ^= 1 << (bit % 8)
		if f := got.Decode(b); f == OK {
			t.Fatalf("bit %d flipped and not noticed", bit)
		}
	})
}

func TestHeaderFaults(t *testing.T) {
	valid := func() []byte {
		b := make([]byte, HeaderLen+8)
		(&Header{Kind: KindData, Session: 1, Packet: 1, Sequence: 1}).Encode(b)
		return b
	}
	tests := []struct {
		name   string
		change func([]byte) []byte
		want   Fault
	}{
		{"valid", func(b []byte) []byte { return b }, OK},
		{"empty", func([]byte) []byte { return nil }, Short},
		{"one byte short of a header", func(b []byte) []byte { return b[:HeaderLen-1] }, Short},
		{"truncated", func(b []byte) []byte { return b[:len(b)-1] }, BadChecksum},
		{"magic", func(b []byte) []byte { b[0]++; return b }, BadMagic},
		{"version", func(b []byte) []byte { b[4]++; return b }, BadVersion},
		{"kind 0", func(b []byte) []byte { b[5] = 0; return b }, BadKind},
		{"express", func(b []byte) []byte { b[5] = byte(KindExpress); return b }, BadKind},
		{"unknown flag", func(b []byte) []byte { b[6] = 16; return b }, BadFlags},
		{"reserved byte", func(b []byte) []byte { b[7] = 1; return b }, BadFlags},
		{"data without a session", func(b []byte) []byte { (&Header{Kind: KindData}).Encode(b); return b }, BadFrame},
		{"hello with a session", func(b []byte) []byte { (&Header{Kind: KindHello, Session: 1}).Encode(b); return b }, BadFrame},
		{"content", func(b []byte) []byte { b[HeaderLen]++; return b }, BadChecksum},
	}
	for _, tt := range tests {
		var h Header
		if got := h.Decode(tt.change(valid())); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

//fuzz:inputs 60000
func FuzzHeader(f *testing.F) {
	b := make([]byte, HeaderLen+RecordLen)
	(&Header{Kind: KindData, Flags: FlagAckNow, Session: 7, Packet: 1, Sequence: 1}).Encode(b)
	f.Add(b)
	f.Add(b[:HeaderLen])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Header
		if h.Decode(b) != OK {
			return
		}
		again := bytes.Clone(b)
		h.Encode(again)
		if !bytes.Equal(again, b) {
			t.Errorf("%x is encoded as %x", b, again)
		}
	})
}

// A record that NextRecord accepts lies within the bytes given, and is encoded as it was
// but for the padding.
//
//fuzz:inputs 60000
func FuzzRecord(f *testing.F) {
	b := make([]byte, RecordSize(5)+RecordSize(0))
	copy(PutRecord(b, &Record{Code: CodePut, Window: 1, Disp: 8}, 5), "hello")
	PutRecord(b[RecordSize(5):], &Record{Code: CodePing}, 0)
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Add(bytes.Repeat([]byte{0xff}, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			var r Record
			n := NextRecord(b, &r)
			if n == 0 {
				return
			}
			if n < RecordLen || n > len(b) || n%8 != 0 || n != RecordSize(len(r.Data)) || cap(r.Data) != len(r.Data) {
				t.Fatalf("record of %d bytes with %d of data in %d", n, len(r.Data), len(b))
			}
			again := make([]byte, n)
			copy(PutRecord(again, &r, len(r.Data)), r.Data)
			if end := RecordLen + len(r.Data); !bytes.Equal(again[:end], b[:end]) {
				t.Fatalf("%x is encoded as %x", b[:end], again[:end])
			}
			b = b[n:]
		}
	})
}

//fuzz:inputs 60000
func FuzzHello(f *testing.F) {
	var b [HelloLen]byte
	(&Hello{Job: 1, Incarnation: 2, Session: 3, Rank: 4, Target: 5, MaxPayload: MinPayload, Credits: 1}).Encode(b[:])
	f.Add(b[:])
	f.Add(b[:HelloLen-1])
	f.Add(make([]byte, HelloLen))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Hello
		if !h.Decode(b) {
			return
		}
		var again [HelloLen]byte
		if h.Encode(again[:]); !bytes.Equal(again[:], b) {
			t.Errorf("%x is encoded as %x", b, again)
		}
	})
}

func TestPieceRoundTrip(t *testing.T) {
	b := make([]byte, PieceLen)
	want := PieceOf{Sequence: 1 << 40, Offset: 1136, Total: 1392}
	want.Put(b)
	var got PieceOf
	if !got.Decode(b) || got != want || got.Decode(b[:PieceLen-1]) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
