package link

import (
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// nothing is a layer above that has nothing to say.
type nothing struct{}

func (nothing) Begin() *Session          { return &Session{} }
func (nothing) Apply(*Bundle) bool       { return true }
func (nothing) Answers(*Session, []byte) {}
func (nothing) Ready(*Session)           {}
func (nothing) Waits(*Session) bool      { return false }
func (nothing) Owes(*Session) bool       { return false }

func (nothing) Inquire(*Session) (asked bool, fault error) { return false, nil }

func (nothing) Express(*Session, []byte) (n, results int) { return 0, 0 }

func (nothing) Executed(*Session, []byte, []byte, uint8) {}

func (nothing) Served()           {}
func (nothing) Quiesced(*Session) {}
func (nothing) Failed(*Session)   {}
func (nothing) Sweep()            {}

// met returns a link, and its session with rank 1, whose frames carry number 77.
func met(t *testing.T) (*Link, *Session) {
	id := uint64(0)
	l := New(Config{
		Rank: 0, Size: 2, Job: 5, Incarnation: 1, Rand: func() uint64 { id++; return id }, Slab: HeapSlab(64, 0, 1472),
		RxFrames: 1024, Parked: 64, DeadAfter: 5000 * millisecond,
		Congestion: func() reliable.Congestion { return reliable.NewAIMD() }, Upper: nothing{}, Stats: &Stats{},
	})
	l.Now = 1000
	b := make([]byte, wire.HeaderLen+wire.HelloLen)
	hello := wire.Hello{Job: 5, Incarnation: 1, Session: 77, Rank: 1, Target: 0, MaxPayload: 1472, Credits: 64}
	hello.Encode(b[wire.HeaderLen:])
	(&wire.Header{Kind: wire.KindHello}).Encode(b)
	l.Receive(b, 3)
	s := l.Session(1)
	if s == nil || !s.Open() {
		t.Fatal("no session")
	}
	return l, s
}

// TestForgedPiecesAreHarmless sends pieces that fit no bundle: they are counted, and what
// is kept of bundles that never become whole is bounded.
func TestForgedPiecesAreHarmless(t *testing.T) {
	l, s := met(t)
	packet := uint64(0)
	send := func(w wire.PieceOf, n int) {
		b := make([]byte, wire.HeaderLen+wire.PieceLen+n)
		w.Put(b[wire.HeaderLen:])
		packet++
		(&wire.Header{Kind: wire.KindData, Session: s.ID(), Packet: packet, Credits: 1, AckRequests: 1, AckResponses: 1}).Encode(b)
		l.Receive(b, 3)
	}
	bad := []struct {
		w wire.PieceOf
		n int
	}{
		{wire.PieceOf{Sequence: 1, Total: 1 << 31}, pieceLen},
		{wire.PieceOf{Sequence: 1, Total: 1392, Offset: 8}, 8},
		{wire.PieceOf{Sequence: 1, Total: 1392, Offset: 2 * pieceLen}, 8},
		{wire.PieceOf{Sequence: 1, Total: 1392}, 8},
		{wire.PieceOf{Sequence: 1}, 0},
	}
	for _, p := range bad {
		send(p.w, p.n)
	}
	if n := l.stats.Faults[wire.BadFrame]; int(n) != len(bad) {
		t.Errorf("%d of %d pieces were refused", n, len(bad))
	}
	for seq := range uint64(200) {
		send(wire.PieceOf{Sequence: seq + 1, Total: 1392}, pieceLen)
	}
	if n := len(s.joining); n != maxJoining {
		t.Errorf("pieces of %d bundles are kept", n)
	}
}
