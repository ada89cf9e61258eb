package express

import (
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/wire"
)

const session, peerSession = 0x1122334455667788, 0x8877665544332211

func openTables() *Tables {
	tables := HeapTables(2)
	tables.OpenSlot(0, Slot{Session: session, PeerSession: peerSession, Rank: 3})
	return tables
}

// User space claims an exchange only if it is the next, and nothing of it was begun.
func TestClaims(t *testing.T) {
	for _, c := range []struct {
		last, state, claimed uint64
		want                 bool
	}{
		{0, StateDone, 1, true},
		{7, StateDone, 8, true},
		{7, StateDone, 7, false},
		{7, StateDone, 9, false},
		{7, StateDone, 6, false},
		{7, StateProgram, 7, false},
		{7, StateProgram, 8, false},
		{7, StateUser, 7, false},
		{7, StateInterrupted, 7, false},
		{7, StateInterrupted, 8, false},
		{MaxExchange - 1, StateDone, MaxExchange, true},
	} {
		tables := openTables()
		word, before := &tables.places[0].Word, WordOf(c.last, c.state)
		*word = before
		if got := tables.Claim(0, c.claimed); got != c.want {
			t.Errorf("%+v: claimed %v", c, got)
		}
		if tables.Claim(0, c.claimed) {
			t.Errorf("%+v: claimed twice", c)
		}
		if !c.want {
			if *word != before {
				t.Errorf("%+v: the word is %#x", c, *word)
			}
			continue
		}
		if tables.Unclaim(0, c.claimed); *word != before || !tables.Claim(0, c.claimed) {
			t.Errorf("%+v: not given up: the word is %#x", c, *word)
		}
	}
}

// A done exchange is answered from its slot, and no other is.
func TestAnswers(t *testing.T) {
	tables := openTables()
	frame := make([]byte, MaxPayload)
	answer := func(h Header) (Header, []byte) {
		t.Helper()
		got, body, fault := Decode(frame[:tables.Answer(0, frame, &h, true)], nil)
		want := Header{Session: peerSession, Exchange: h.Exchange, Try: h.Try, Flags: wire.FlagResponse, Fate: got.Fate, User: true}
		if fault != wire.OK || got != want {
			t.Fatalf("%v: %+v, want %+v", fault, got, want)
		}
		return got, body
	}
	for _, flags := range []uint8{0, wire.FlagUser} {
		p := tables.Place(0)
		p.Word, p.Outcome = WordOf(7, StateDone), Outcome{Length: 8, Fate: 1 << 2, Done: 3}.Pack()
		p.Results[0] = 99
		h, body := answer(Header{Exchange: 7, Try: 3, Flags: flags})
		if h.Fate != 1<<2 || len(body) != 8 || le.Uint64(body) != 99 {
			t.Errorf("flags %d: %+v, %x", flags, h, body)
		}
		tables.Claim(0, 8)
		for _, n := range []uint64{6, 7, 8, 9} {
			if tables.Answer(0, frame, &Header{Exchange: n, Try: 1}, true) != 0 {
				t.Errorf("exchange %d was answered while the 8th is under way", n)
			}
		}
		tables.PublishTaken(0, 8)
		if h, body := answer(Header{Exchange: 8, Try: 1, Flags: flags}); h.Fate != FateTaken || len(body) != 0 {
			t.Errorf("flags %d: %+v, %x", flags, h, body)
		}
	}
}

// A lock that an interrupted exchange of a dead session holds is given up once.
func TestAbandon(t *testing.T) {
	tables := openTables()
	tables.Place(0).Locked = 6
	if held, ok := tables.Holds(0); held != 5 || !ok {
		t.Errorf("the exchange holds the lock of window %d: %v", held, ok)
	}
	tables.CloseSlot(0)
	if held, ok := tables.Abandon(0); held != 5 || !ok {
		t.Errorf("window %d was abandoned: %v", held, ok)
	}
	if _, ok := tables.Abandon(0); ok {
		t.Error("abandoned twice")
	}
}
