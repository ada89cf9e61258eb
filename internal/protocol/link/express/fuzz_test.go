package express

import (
	"bytes"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

// mended returns b as a frame of the first exchange, with the fields right that no fuzzer
// guesses.
func mended(b []byte) []byte {
	frame := append(bytes.Clone(b), make([]byte, max(0, wire.HeaderLen-len(b)))...)
	head := request(1, put(0, "x"))
	copy(frame[:6], head)           // magic, version, kind
	copy(frame[8:16], head[8:16])   // session
	copy(frame[32:40], head[32:40]) // exchange
	le.PutUint32(frame[checksumAt:], Checksum(frame))
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
		around := bytesOf(make([]uint64, 2*PageLen/8+2))
		tt := target{HeapTables(2), around[8 : len(around)-8], make([]uint64, window.LockWordLen/8)}
		tt.OpenSlot(0, Slot{Session: session, PeerSession: peerSession, Rank: rank})
		tt.Expose(Window{ID: id, Mem: tt.mem[:size], Lock: window.LockWordIn(bytesOf(tt.words))}, nil)
		other := tt.slots[1]
		before := bytes.Clone(frame)
		n, v, why := tt.Serve(0, frame, ByUser)
		if !bytes.Equal(around[:8], make([]byte, 8)) || !bytes.Equal(tt.mem[size:], make([]byte, len(tt.mem)-size)) {
			t.Error("memory outside of the window was changed")
		}
		if tt.slots[1] != other || tt.words[0] != 0 {
			t.Errorf("another slot was changed, or the lock is %#x", tt.words[0])
		}
		if v != Answer {
			if !bytes.Equal(tt.mem, make([]byte, len(tt.mem))) || tt.slots[0].Word != word(0, stateDone) || !bytes.Equal(frame, before) {
				t.Errorf("%v, and something has changed", why)
			}
			return
		}
		h, _, fault := Decode(frame[:n])
		if fault != wire.OK || h.Fate != FateDone {
			t.Errorf("answer %+v: %v", h, fault)
		}
		if m, v, why := tt.Serve(0, before, ByProgram); h.Before || before[6] == 0 && (v != Answer || why != Repeated || !bytes.Equal(before[:m], frame[:n])) {
			t.Errorf("the repeat: %v, %v, %x, first %x", v, why, before[:m], frame[:n])
		}
	})
}
