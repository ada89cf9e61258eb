package engine

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// Both ranks dial at the same moment and end up with one session.
func TestSimultaneousDial(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a, b := f.dial(0, 1), f.dial(1, 0)
	f.Settle()
	if !a.Open() || !b.Open() || a.PeerID() != b.ID() || b.PeerID() != a.ID() {
		t.Fatalf("sessions do not match: %+v %+v", a, b)
	}
	f.atRest()
}

// Calls made before the session opens wait for it, whatever frame of the
// handshake is lost.
func TestHandshakeSurvivesLoss(t *testing.T) {
	for _, lose := range []wire.Kind{wire.KindHello, wire.KindHelloAck} {
		f := newRanks(t, 2, 64, nil)
		lost := 0
		f.Filter = func(_, _ int, b []byte) int {
			if kindOfFrame(b) == lose && lost < 3 {
				lost++
				return 0
			}
			return 1
		}
		a := f.e[0].OpenAccess(f.dial(0, 1), testWindow)
		f.issue(f.e[0], &onesided.Call{Access: a, Code: wire.CodePut, Origin: word(3)})
		if err := f.flush(f.e[0], a); err != nil || le.Uint64(f.mem[1]) != 3 {
			t.Errorf("kind %d lost: %v", lose, err)
		}
		f.atRest()
	}
}

func TestNobodyThere(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	f.Cut[1] = true
	a := f.e[0].OpenAccess(f.dial(0, 1), testWindow)
	result := make([]byte, 8)
	f.issue(f.e[0], &onesided.Call{Access: a, Code: wire.CodeGet, Result: result})
	f.e[0].Flush(a)
	f.Until(7500*millisecond, (*onesided.FlushWait)(a).Met)
	if err := a.TakeError(); !errors.Is(err, mpierr.ProcFailed) {
		t.Error(err)
	}
	f.atRest()
}

// A peer falls silent in the midst of everything: every wait ends with the
// process-failed class, and nothing stays allocated.
func TestSilentPeerFailsEverything(t *testing.T) {
	f := newRanks(t, 3, 1<<20, nil)
	a := f.access(0, 1)
	back := f.access(1, 0)
	late := f.access(2, 1)
	e := f.e[0]
	local := f.e[1]
	var request onesided.Request
	local.Lock(local.OpenLocal(local.Windows().Lookup(testWindow)), true) // so that locks queue
	e.Lock(a, true)
	f.Settle()
	f.e[1].Issue(&onesided.Call{Access: back, Code: wire.CodeGet, Result: make([]byte, 200_000)})
	f.Step() // rank 0 has answers in flight, too
	f.Cut[1] = true
	b := e.OpenAccess(sessionAt(a), 8)
	e.Issue(&onesided.Call{Access: b, Code: wire.CodeGet, Result: make([]byte, 1<<20), Request: &request})
	e.Issue(&onesided.Call{Access: b, Code: wire.CodePut, Origin: make([]byte, 1<<20)})
	f.send(0, 1, 1, 1, []byte("gone"))
	message := f.receive(2, 1, 1, 1, 8)
	start := f.Now
	f.Until(7500*millisecond, func() bool {
		return (*onesided.LockWait)(a).Met() && (*onesided.FlushWait)(b).Met() && request.Met() && message.Met()
	})
	t.Logf("found dead after %d ms", (f.Now-start)/millisecond)
	for _, err := range []error{a.TakeError(), b.TakeError(), request.Err(), sessionAt(a).Err(), sessionAt(late).Err()} {
		if !errors.Is(err, mpierr.ProcFailed) {
			t.Errorf("got %v, want process failed", err)
		}
	}
	if _, err := e.Issue(&onesided.Call{Access: a, Code: wire.CodePut, Origin: word(1)}); !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("a later put: %v", err)
	}
	f.atRest()
	f.Cut[1] = false // the partition heals: the other side hears that it is over
	f.Pass(1000 * millisecond)
	if err := sessionAt(back).Err(); !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("the other side: %v", err)
	}
	f.atRest()
}

func TestRestart(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a := f.access(0, 1)
	result := make([]byte, 8)
	f.Cut[1] = true
	f.issue(f.e[0], &onesided.Call{Access: a, Code: wire.CodeGet, Result: result})
	f.Settle()
	f.Cut[1] = false
	f.start(1, 2, 2, 64, nil)
	if s := f.dial(1, 0); s == nil {
		t.Fatal("no session")
	}
	f.Until(1000*millisecond, (*onesided.FlushWait)(a).Met)
	if err := a.TakeError(); !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("what was outstanding: %v", err)
	}
	if f.e[0].Session(1) == sessionAt(a) {
		t.Fatal("the new life has the old session")
	}
	b := f.access(0, 1)
	f.issue(f.e[0], &onesided.Call{Access: b, Code: wire.CodePut, Origin: word(9)})
	if err := f.flush(f.e[0], b); err != nil || le.Uint64(f.mem[1]) != 9 {
		t.Errorf("to the new life: %v", err)
	}
	if _, err := f.e[0].Issue(&onesided.Call{Access: a, Code: wire.CodePut, Origin: word(1)}); !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("through the old session: %v", err)
	}
	f.atRest()
}

// Hellos of an earlier life, and hellos to one, change nothing.
func TestStaleHellos(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	var old [][]byte
	f.Filter = func(from, _ int, b []byte) int {
		if from == 1 && kindOfFrame(b) <= wire.KindHelloAck {
			old = append(old, bytes.Clone(b))
		}
		return 1
	}
	f.dial(1, 0)
	f.Settle()
	f.start(1, 2, 2, 64, nil)
	a := f.access(0, 1) // dials the new life
	toOld := f.e[1].Stats
	for _, b := range old {
		f.e[0].Receive(b, 1)
	}
	f.Settle()
	if !sessionAt(a).Open() || f.e[0].Session(1) != sessionAt(a) || f.e[0].Stats.Handshakes == 0 {
		t.Errorf("a hello of an earlier life was taken seriously: %+v", f.e[0].Stats)
	}
	f.issue(f.e[0], &onesided.Call{Access: a, Code: wire.CodePut, Origin: word(9)})
	if err := f.flush(f.e[0], a); err != nil {
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
	f.atRest()
}

// Whatever is changed in a frame, the target counts it and goes on.
func TestForgedFramesAreHarmless(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a := f.access(0, 1)
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
		f.e[to].Receive(c, PathID(from))
		return 1
	}
	for i := range uint64(500) {
		c := onesided.Call{Access: a, Code: wire.CodeAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Disp: i % 8 * 8, Origin: word(1)}
		f.issue(f.e[0], &c)
		if err := f.flush(f.e[0], a); err != nil {
			t.Fatal(err)
		}
	}
	sum := uint64(0)
	for i := range 8 {
		sum += le.Uint64(f.mem[1][i*8:])
	}
	if sum != 500 {
		t.Errorf("the window holds %d, want 500", sum)
	}
	faults := uint64(0)
	for _, n := range f.e[1].Stats.Faults {
		faults += n
	}
	if int(faults) != forged {
		t.Errorf("%d frames forged, %d faults counted: %v", forged, faults, f.e[1].Stats.Faults)
	}
	forge = false
	f.atRest()
}

// A peer dies and leaves a bundle behind that waits for one that never comes.
func TestDeadPeerLeavesNothingParked(t *testing.T) {
	f := newRanks(t, 2, 64, nil)
	a := f.access(0, 1)
	f.Pass(millisecond)
	first := true
	f.Filter = func(from, _ int, b []byte) int {
		if from == 0 && kindOfFrame(b) == wire.KindData && first {
			first = false
			return 0
		}
		return 1
	}
	for range 2 {
		f.send(0, 1, 1, 1, nil)
		sessionAt(a).Push(sessionAt(a).Next(link.Request) - 1) // acknowledged at once: no timer runs
		f.Step()
	}
	if f.e[1].Usage().Parked != 1 {
		t.Fatal("nothing parked")
	}
	f.Cut[0] = true
	f.atRest()
}

// A rank full of requests to a peer that does not answer still answers others.
func TestFullRankStillAnswers(t *testing.T) {
	f := newRanks(t, 3, 64, nil)
	stuck, a := f.access(0, 2), f.access(1, 0)
	f.Cut[2] = true
	for range 100 {
		f.e[0].Issue(&onesided.Call{Access: stuck, Code: wire.CodePut, Origin: make([]byte, 4000)})
		f.Pass(millisecond) // so that idle sessions no longer count, and this peer may have all there is
	}
	if (*onesided.RoomWait)(stuck).Met() {
		t.Fatal("still room for requests")
	}
	f.issue(f.e[1], &onesided.Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8)})
	f.Until(millisecond, (*onesided.LocalWait)(a).Met)
	f.atRest()
}

// A peer that asked for much and fell silent does not keep answers from others.
func TestSilentPeerLeavesSlotsToOthers(t *testing.T) {
	f := newRanks(t, 3, 1<<20, nil)
	silent, a := f.access(2, 0), f.access(1, 0)
	f.Filter = func(from, to int, _ []byte) int {
		if from == 0 && to == 2 {
			return 0
		}
		return 1
	}
	f.e[2].Issue(&onesided.Call{Access: silent, Code: wire.CodeGet, Result: make([]byte, 1<<20)})
	f.Step()
	f.Cut[2] = true
	f.Pass(10 * millisecond)
	f.issue(f.e[1], &onesided.Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8)})
	f.Until(millisecond, (*onesided.LocalWait)(a).Met)
	f.atRest()
}

// TestByeWhileDialing has a rank send a message and leave before its peer has answered the
// first frame: the message arrives, and the peer learns that the rank has left.
func TestByeWhileDialing(t *testing.T) {
	f := newRanks(t, 3, 8, nil)
	f.dial(0, 2) // nothing is for this one
	p := f.send(0, 1, 1, 7, content(1, 8))
	f.e[0].Bye()
	wait := &ByeWait{f.e[0]}
	if !p.Met() || wait.Met() {
		t.Fatal("the message has not been taken over, or is taken for delivered")
	}
	f.Until(1000*millisecond, wait.Met)
	r := f.receive(1, 0, 1, 7, 8)
	if !r.Met() || r.Err() != nil || !bytes.Equal(r.Buffer, content(1, 8)) || f.e[1].Session(0).Left() == nil {
		t.Errorf("the message: %v, %v; left: %v", r.Buffer, r.Err(), f.e[1].Session(0).Left())
	}
	f.atRest()
}
