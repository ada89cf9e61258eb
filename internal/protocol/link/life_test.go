package link_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// Both ranks dial at the same moment and end up with one session.
func TestSimultaneousDial(t *testing.T) {
	f := newRanks(t, 2, nil)
	a, b := f.dial(0, 1), f.dial(1, 0)
	f.Settle()
	if !a.Open() || !b.Open() || a.PeerID() != b.ID() || b.PeerID() != a.ID() {
		t.Fatalf("sessions do not match: %+v %+v", a, b)
	}
	f.AtRest()
}

// Calls made before the session opens wait for it, whatever frame of the
// handshake is lost.
func TestHandshakeSurvivesLoss(t *testing.T) {
	for _, lose := range []wire.Kind{wire.KindHello, wire.KindHelloAck} {
		f := newRanks(t, 2, nil)
		lost := 0
		f.Filter = func(_, _ int, b []byte) int {
			if kindOf(b) == lose && lost < 3 {
				lost++
				return 0
			}
			return 1
		}
		a := f.dial(0, 1)
		f.send(a, 8, 0)
		if err := f.flush(a); err != nil {
			t.Errorf("kind %d lost: %v", lose, err)
		}
		f.once(a, 0)
		f.AtRest()
	}
}

func TestNobodyThere(t *testing.T) {
	f := newRanks(t, 2, nil)
	f.Cut[1] = true
	a := f.dial(0, 1)
	a.ask(8)
	a.push()
	f.Until(7500*millisecond, a.over)
	if err := a.Err(); !errors.Is(err, mpierr.ProcFailed) {
		t.Error(err)
	}
	f.AtRest()
}

func TestRestart(t *testing.T) {
	f := newRanks(t, 2, nil)
	a := f.open(0, 1)
	f.Cut[1] = true
	a.ask(8)
	f.Settle()
	f.Cut[1] = false
	f.start(1, 2, 2, nil)
	if s := f.dial(1, 0); s == nil {
		t.Fatal("no session")
	}
	f.Until(1000*millisecond, a.over)
	if err := a.Err(); !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("what was outstanding: %v", err)
	}
	if f.at(0, 1) == a {
		t.Fatal("the new life has the old session")
	}
	b := f.open(0, 1)
	f.send(b, 8, 0)
	if err := f.flush(b); err != nil {
		t.Errorf("to the new life: %v", err)
	}
	f.once(b, 0)
	f.AtRest()
}

// Hellos of an earlier life, and hellos to one, change nothing.
func TestStaleHellos(t *testing.T) {
	f := newRanks(t, 2, nil)
	var old [][]byte
	f.Filter = func(from, _ int, b []byte) int {
		if from == 1 && kindOf(b) <= wire.KindHelloAck {
			old = append(old, bytes.Clone(b))
		}
		return 1
	}
	f.dial(1, 0)
	f.Settle()
	f.start(1, 2, 2, nil)
	a := f.open(0, 1) // dials the new life
	toOld := f.e[1].Stats
	for _, b := range old {
		f.e[0].Receive(b, 1)
	}
	f.Settle()
	if !a.Open() || f.at(0, 1) != a || f.e[0].Stats.Handshakes == 0 {
		t.Errorf("a hello of an earlier life was taken seriously: %+v", f.e[0].Stats)
	}
	f.send(a, 8, 0)
	if err := f.flush(a); err != nil {
		t.Error(err)
	}
	// Rank 0 as it was before the restart asks for the old life.
	h := wire.Hello{Job: testJob, Incarnation: 1, Peer: 1, Session: 77, Rank: 0, Target: 1, MaxPayload: 1472, Credits: 1}
	b := make([]byte, wire.HeaderLen+wire.HelloLen)
	h.Encode(b[wire.HeaderLen:])
	(&wire.Header{Kind: wire.KindHello}).Encode(b)
	f.e[1].Receive(b, 0)
	if f.e[1].Stats.Handshakes != toOld.Handshakes+1 {
		t.Error("a hello to an earlier life was taken seriously")
	}
	f.Settle()
	f.AtRest()
}

// Whatever is changed in a frame, the target counts it and goes on.
func TestForgedFramesAreHarmless(t *testing.T) {
	f := newRanks(t, 2, nil)
	a := f.open(0, 1)
	r := rand.New(rand.NewPCG(1, 2))
	forge := true
	forged := 0
	f.Filter = func(from, to int, b []byte) int {
		if !forge || from != 0 {
			return 1
		}
		c := bytes.Clone(b)
		switch r.IntN(3) {
		case 0:
			c = c[:r.IntN(len(c))]
		case 1:
			c[r.IntN(len(c))] ^= 1 << r.IntN(8)
		default:
			c = append(c, 0)
		}
		forged++
		f.e[to].Receive(c, link.PathID(from))
		return 1
	}
	for range 500 {
		f.send(a, 8, wire.FlagOrdered)
		if err := f.flush(a); err != nil {
			t.Fatal(err)
		}
	}
	f.once(a, 0)
	faults := uint64(0)
	for _, n := range f.e[1].Stats.Faults {
		faults += n
	}
	if int(faults) != forged {
		t.Errorf("%d frames forged, %d faults counted: %v", forged, faults, f.e[1].Stats.Faults)
	}
	forge = false
	f.AtRest()
}

// A peer dies and leaves a bundle behind that waits for one that never comes.
func TestDeadPeerLeavesNothingParked(t *testing.T) {
	f := newRanks(t, 2, nil)
	a := f.open(0, 1)
	f.Pass(millisecond)
	first := true
	f.Filter = func(from, _ int, b []byte) int {
		if from == 0 && kindOf(b) == wire.KindData && first {
			first = false
			return 0
		}
		return 1
	}
	for range 2 {
		a.put(0, 0, wire.FlagOrdered)
		a.Push(a.Next(link.Request) - 1) // acknowledged at once: no timer runs
		f.Step()
	}
	if f.e[1].Usage().Parked != 1 {
		t.Fatal("nothing parked")
	}
	f.Cut[0] = true
	f.AtRest()
}

// A rank full of requests to a peer that does not answer still answers others.
func TestFullRankStillAnswers(t *testing.T) {
	f := newRanks(t, 3, nil)
	stuck, a := f.open(0, 2), f.open(1, 0)
	f.Cut[2] = true
	for range 100 {
		stuck.write(&transfer{left: 4000})
		f.Pass(millisecond) // so that idle sessions no longer count, and this peer may have all there is
	}
	if stuck.SendRoom() {
		t.Fatal("still room for requests")
	}
	f.ask(a, 8)
	f.Until(millisecond, a.answered)
	f.AtRest()
}

// A peer that asked for much and fell silent does not keep answers from others.
func TestSilentPeerLeavesSlotsToOthers(t *testing.T) {
	f := newRanks(t, 3, nil)
	silent, a := f.open(2, 0), f.open(1, 0)
	f.Filter = func(from, to int, _ []byte) int {
		if from == 0 && to == 2 {
			return 0
		}
		return 1
	}
	silent.ask(1 << 20)
	f.Step()
	f.Cut[2] = true
	f.Pass(10 * millisecond)
	f.ask(a, 8)
	f.Until(millisecond, a.answered)
	f.AtRest()
}

// A bundle that came before its turn is parked; who waits for what follows it must hear when it has been taken in, even if the acknowledgement that says so is
// lost.
func TestParkedHoldsUpAndLetsGo(t *testing.T) {
	for _, loseAck := range []bool{false, true} {
		f := newRanks(t, 2, nil)
		a := f.open(0, 1)
		f.Pass(millisecond)
		lost, acks := false, 0
		f.Filter = func(from, _ int, b []byte) int {
			switch {
			case from == 0 && kindOf(b) == wire.KindData && !lost:
				lost = true
				return 0
			case from == 1 && loseAck && lost && acks < 2: // of what was parked, and of when it was taken in
				acks++
				return 0
			}
			return 1
		}
		for range 2 {
			a.put(500, 0, wire.FlagOrdered)
			a.Push(a.Next(link.Request) - 1)
			f.Step()
		}
		f.send(a, 8, 0)
		a.push()
		f.Settle()
		if f.e[1].Usage().Parked != 1 || a.over() {
			t.Fatalf("%d bundles are parked, and the flush is over: %v", f.e[1].Usage().Parked, a.over())
		}
		f.Until(1000*millisecond, a.over)
		f.once(a, 0)
		if took := f.at(1, 0).applied; slices.Index(took, 1) > slices.Index(took, 2) {
			t.Errorf("the records took effect in the order %v", took)
		}
		f.AtRest()
	}
}
