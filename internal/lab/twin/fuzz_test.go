package twin

import (
	"bytes"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// mended returns b as a frame of the first exchange, with the fields right that no fuzzer
// guesses.
func mended(b []byte) []byte {
	frame := append(bytes.Clone(b), make([]byte, max(0, wire.HeaderLen-len(b)))...)
	head := request(1, put(0, "x"))
	copy(frame[:6], head)           // magic, version, kind
	copy(frame[8:16], head[8:16])   // session
	copy(frame[32:40], head[32:40]) // exchange
	le.PutUint32(frame[16:], express.Checksum(frame))
	return frame
}

// FuzzServe serves hostile frames, whose header is put right as far as the fuzzer cannot
// guess it. Nothing but the window's memory, the slot and the lock ever changes; a frame
// for user space stays as it was; and an answer is well formed, and repeated alike. The
// corpus in testdata goes through the program too, in the tests of package bpf.
//
//fuzz:inputs 25000
func FuzzServe(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		frame := mended(b)
		around := make([]byte, 2*express.PageLen+16)
		tt := target{New(express.HeapTables(2)), around[8 : len(around)-8], make([]byte, windows.LockWordLen), windows.NewCounters(counters)}
		tt.OpenSlot(0, express.Slot{Session: session, PeerSession: peerSession, Rank: rank})
		tt.Expose(express.Window{ID: id}, tt.mem[:size], windows.LockWordIn(tt.words), tt.counters)
		other := *tt.Place(1)
		before := bytes.Clone(frame)
		n, v, why := tt.Serve(0, frame)
		if !bytes.Equal(around[:8], make([]byte, 8)) || !bytes.Equal(tt.mem[size:], make([]byte, len(tt.mem)-size)) {
			t.Error("memory outside of the window was changed")
		}
		if *tt.Place(1) != other || tt.held() != 0 {
			t.Errorf("another slot was changed, or the lock is %#x", tt.held())
		}
		if v != Answer {
			if !bytes.Equal(tt.mem, make([]byte, len(tt.mem))) || tt.Place(0).Word != express.WordOf(0, express.StateDone) || !bytes.Equal(frame, before) {
				t.Errorf("%v, and something has changed", why)
			}
			return
		}
		h, _, fault := express.Decode(frame[:n], nil)
		if fault != wire.OK || h.Fate != express.FateDone {
			t.Errorf("answer %+v: %v", h, fault)
		}
		if m, v, why := tt.Serve(0, before); v != Answer || why != Repeated || !bytes.Equal(before[:m], frame[:n]) {
			t.Errorf("the repeat: %v, %v, %x, first %x", v, why, before[:m], frame[:n])
		}
	})
}
