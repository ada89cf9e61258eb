package bpf_test

import (
	"bytes"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/bpf"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// The program admits a rank to a window in the life that the window was made with, and in
// no other.
func TestLaterLifeIsAnOutsider(t *testing.T) {
	p := loadTier(t)
	const life = 6
	p.tables.Retract(wideWindow)
	w := express.Window{ID: wideWindow, Base: wideBase, Rights: windows.NewMembers([]int{memberRank}, []uint64{life}, nil).Bits}
	p.tables.Expose(w, p.chunks[0][wideBase:][:wideLen], nil, nil)
	for n, test := range []struct {
		life uint64
		want bpf.ClassifierCounter
	}{
		{life - 1, bpf.ClassifierCounterCOUNTER_EXPRESS_NO_ACCESS}, {life, bpf.ClassifierCounterCOUNTER_EXPRESS_EXECUTED},
		{life + 1, bpf.ClassifierCounterCOUNTER_EXPRESS_NO_ACCESS},
	} {
		p.tables.OpenSlot(0, express.Slot{Session: session, PeerSession: peerSession, Rank: memberRank, Life: test.life})
		at, value := p.chunks[0][wideBase:][:8], byte(n+1)
		clear(at)
		put := request(express.Header{Session: session, Exchange: 1, Try: 1},
			record{wire.Record{Code: wire.CodePut, Window: wideWindow}, bytes.Repeat([]byte{value}, 8)})
		before := p.counted(t, test.want)
		if p.exec(t, packet{payload: put}.bytes()); p.counted(t, test.want) != before+1 {
			t.Errorf("life %d: counter %d did not advance", test.life, test.want)
		}
		if changed := at[0] == value; changed != (test.life == life) {
			t.Errorf("life %d: the window has changed: %t", test.life, changed)
		}
	}
}

// The program remembers which slot a session had. It finds that the session has another one now, or is
// forgotten.
func TestSessionsMoveAndGo(t *testing.T) {
	p := loadTier(t)
	runtime.LockOSThread() // each processor remembers for itself
	defer runtime.UnlockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := range 1024 {
		if all.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	defer unix.SchedSetaffinity(0, &all)
	expect := func(what string, exchange uint64, want bpf.ClassifierCounter) {
		t.Helper()
		before := p.counted(t, want)
		put := request(express.Header{Session: session, Exchange: exchange, Try: 1}, record{wire.Record{Code: wire.CodePut, Window: wideWindow}, make([]byte, 8)})
		if p.exec(t, packet{payload: put}.bytes()); p.counted(t, want) != before+1 {
			t.Errorf("%s: counter %d did not advance", what, want)
		}
	}
	open := func(slot int) {
		p.tables.OpenSlot(slot, express.Slot{Session: session, PeerSession: peerSession, Rank: memberRank})
		if err := p.Sessions.Put(uint64(session), uint32(slot+1)); err != nil {
			t.Fatal(err)
		}
	}
	expect("in its slot", 1, executed)
	expect("again", 2, executed)
	p.tables.CloseSlot(0)
	open(2)
	expect("in another slot", 1, executed)
	if w := p.tables.Place(2).Word; w != express.WordOf(1, express.StateDone) {
		t.Errorf("the state of the other slot is %#x", w)
	}
	p.tables.CloseSlot(2)
	expect("in none", 2, bpf.ClassifierCounterCOUNTER_EXPRESS_NO_SLOT)
	open(2)
	expect("in that slot again", 1, executed)
	p.tables.CloseSlot(2)
	if err := p.Sessions.Delete(uint64(session)); err != nil {
		t.Fatal(err)
	}
	expect("forgotten", 2, bpf.ClassifierCounterCOUNTER_UNKNOWN_SESSION)
}

// Frames of no session are dropped, whatever a slot that is not in use has.
func TestSessionZeroHasNoSlot(t *testing.T) {
	for name, keys := range map[string]*express.Keys{"checksums": nil, "codes": {Requests: siphash.Key{1}, Answers: siphash.Key{2}, Answered: siphash.Key{3}}} {
		p := loadTier(t)
		p.tables.OpenSlot(0, express.Slot{Session: session, PeerSession: peerSession, Rank: memberRank, Keys: keys})
		p.tables.CloseSlot(0)
		p.tables.WipeSlot(0)
		var key *siphash.Key
		if keys != nil {
			key = new(siphash.Key)
		}
		put := signed(key, express.Header{Exchange: 1, Try: 1}, record{wire.Record{Code: wire.CodePut, Window: wideWindow}, bytes.Repeat([]byte{7}, 8)})
		answer := make([]byte, wire.HeaderLen+8)
		express.Request(answer, express.Header{Exchange: 1, Try: 1, Flags: wire.FlagResponse}, key)
		clear(p.chunks[0][wideBase:][:8])
		for _, payload := range [][]byte{put, answer} {
			verdict, _ := p.exec(t, packet{payload: payload}.bytes())
			if verdict != xdpDrop || p.handed(t) != nil || p.chunks[0][wideBase] != 0 {
				t.Errorf("%s: verdict %d, or it was handed over or executed", name, verdict)
			}
		}
		if n := p.counted(t, bpf.ClassifierCounterCOUNTER_UNKNOWN_SESSION); n != 2 {
			t.Errorf("%s: of 2 frames %d are of an unknown session", name, n)
		}
	}
}
