package engine

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/twin"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// A stopped target whose program answers goes on to serve exchanges and is not declared
// dead. Whatever else it owes fails as ever.
func TestStoppedTargetAnswersExchanges(t *testing.T) {
	p := newPrograms(t, 2, 64, nil)
	a := p.access(0, 1)
	p.Pass(millisecond)
	p.stopped[1] = true
	for i := range uint64(20) {
		if got, err := p.fetchAdd(0, a, 0); err != nil || got != i {
			t.Fatalf("round %d: %d, %v", i, got, err)
		}
		p.Advance(p.Now + 1000*millisecond)
	}
	var request onesided.Request
	get := onesided.Call{Access: a, Code: wire.CodeGet, Result: make([]byte, 8), Request: &request}
	a.SetReach(false)
	p.issue(p.e[0], &get)
	p.e[0].Tick()
	a.SetReach(true)
	start := p.Now
	p.Until(7500*millisecond, request.Met)
	if !errors.Is(request.Err(), mpierr.ProcFailed) {
		t.Errorf("the get: %v", request.Err())
	}
	t.Logf("found dead after %d ms", (p.Now-start)/millisecond)
	p.Cut[1] = true
	p.atRest()
}

// A call that is sent before its caller waits is served by a stopped target, too.
func TestStoppedTargetAnswersWhatLeavesEarly(t *testing.T) {
	p := newPrograms(t, 2, 64, nil)
	a := p.access(0, 1)
	p.Pass(millisecond)
	p.stopped[1] = true
	for i := range uint64(20) {
		result := make([]byte, 8)
		p.issue(p.e[0], &onesided.Call{
			Access: a, Code: wire.CodeGetAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Origin: word(1), Result: result,
		})
		p.e[0].Tick()
		if err := p.flush(p.e[0], a); err != nil || le.Uint64(result) != i {
			t.Fatalf("round %d: %d, %v", i, le.Uint64(result), err)
		}
	}
	p.Cut[1] = true
	p.atRest()
}

// Exchanges that are answered without pause do not hide that the target owes something
// else.
func TestExchangesDoNotHideDeath(t *testing.T) {
	p := newPrograms(t, 2, 64, nil)
	a := p.access(0, 1)
	p.Pass(millisecond)
	p.stopped[1] = true
	sessionAt(a).Watch(1)
	sessionAt(a).Await()
	end := p.Now + 7500*millisecond
	for !sessionAt(a).Dead() && p.Now < end {
		p.fetchAdd(0, a, 0)
		p.Advance(p.Now + 3*millisecond)
	}
	if !sessionAt(a).Dead() {
		t.Error("nobody noticed that the target is stopped")
	}
	sessionAt(a).Watch(-1)
	p.Cut[1] = true
	p.atRest()
}

// A target that falls silent during an exchange fails it.
func TestDeathDuringAnExchange(t *testing.T) {
	p := newPrograms(t, 2, 64, nil)
	a := p.access(0, 1)
	p.fetchAdd(0, a, 0)
	p.Cut[1] = true
	start := p.Now
	p.issue(p.e[0], &onesided.Call{Access: a, Code: wire.CodePut, Origin: word(3)})
	p.e[0].Flush(a)
	p.Until(7500*millisecond, (*onesided.FlushWait)(a).Met)
	if err := a.TakeError(); !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("got %v", err)
	}
	t.Logf("found dead after %d ms, %d frames repeated", (p.Now-start)/millisecond, p.e[0].Stats.Repeated)
	p.atRest()
}

// A target that lives and never answers exchanges is given up as one that never
// acknowledges.
func TestTargetThatNeverAnswersExchanges(t *testing.T) {
	p := newPrograms(t, 2, 64, nil)
	a := p.access(0, 1)
	p.admit = func(_, _ int, b []byte) bool { return !isRequest(b) }
	p.issue(p.e[0], &onesided.Call{Access: a, Code: wire.CodePut, Origin: word(3)})
	p.e[0].Flush(a)
	p.Until(7500*millisecond, (*onesided.FlushWait)(a).Met)
	if err := a.TakeError(); !errors.Is(err, mpierr.ProcFailed) {
		t.Errorf("got %v", err)
	}
	p.admit = nil
	p.atRest()
}

// A time in which the origin lacked a processor does not count as one in which its exchange got no
// answer.
func TestLateOriginKeepsItsExchange(t *testing.T) {
	p := newPrograms(t, 2, 64, nil)
	a, back := p.access(0, 1), p.access(1, 0)
	back.SetReach(false)
	p.Pass(20 * millisecond)
	p.admit = func(_, to int, b []byte) bool { return to != 1 || !isRequest(b) }
	p.issue(p.e[0], &onesided.Call{Access: a, Code: wire.CodePut, Origin: word(3)})
	p.e[0].Flush(a)
	s := &p.e[0].Stats
	p.Until(1000*millisecond, func() bool { return s.Repeated == 4 })
	p.Advance(p.Now + testLimit + 1000*millisecond)
	p.issue(p.e[1], &onesided.Call{Access: back, Code: wire.CodePut, Origin: word(4)})
	if err := p.flush(p.e[1], back); err != nil { // the origin hears of its target, and goes on
		t.Fatal(err)
	}
	p.Until(1000*millisecond, func() bool { return s.Repeated == 6 || sessionAt(a).Dead() })
	p.admit = nil
	p.Until(1000*millisecond, (*onesided.FlushWait)(a).Met)
	if err := a.TakeError(); err != nil || le.Uint64(p.mem[1]) != 3 || s.Executed+s.Taken != 1 {
		t.Errorf("%v, %d in memory, %d executed, %d taken", err, le.Uint64(p.mem[1]), s.Executed, s.Taken)
	}
	p.atRest()
}

// An answer that comes once its session has failed changes nothing, neither before nor after a
// session with another life of the target begins. The session's end clears its record of lost
// answers.
func TestAnswerAfterTheSessionFailed(t *testing.T) {
	p := newPrograms(t, 2, 64, nil)
	a := p.access(0, 1)
	e, s := p.e[0], p.e[0].Session(1)
	p.mode = mute
	for range 3 {
		p.fetchAdd(0, a, 0)
	}
	p.Advance(p.Now + 1100*millisecond)
	p.mode = runs
	var late []byte
	p.admit = func(_, _ int, b []byte) bool {
		if isAnswer(b) {
			late = bytes.Clone(b)
		}
		return !isAnswer(b)
	}
	var request onesided.Request
	result := word(99)
	p.issue(e, &onesided.Call{
		Access: a, Code: wire.CodeGetAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Origin: word(1), Result: result, Request: &request,
	})
	e.Flush(a)
	p.Settle()
	if late == nil || !s.AnswersLost() || e.Usage().FreeSlots != e.Usage().Slots-1 {
		t.Fatalf("no exchange runs in a tier that was left: lost %t, %+v", s.AnswersLost(), e.Usage())
	}
	p.admit = nil
	s.Fail(errors.New("the test ends it"))
	counts := e.Stats
	unchanged := func(when string) {
		t.Helper()
		if u := e.Usage(); u.FreeSlots != u.Slots || e.Stats.LateAnswers+e.Stats.Executed != counts.LateAnswers+counts.Executed {
			t.Errorf("%s: %+v, %+v", when, u, e.Stats)
		}
	}
	unchanged("after the failure")
	p.Deliver(1, 0, late)
	p.Settle()
	unchanged("after the answer")
	if p.e[1].Stats.Resets != 1 {
		t.Errorf("the target was told %d times that it was given up", p.e[1].Stats.Resets)
	}
	if err := a.TakeError(); !errors.Is(err, mpierr.ProcFailed) || !errors.Is(request.Err(), mpierr.ProcFailed) || le.Uint64(result) != 99 {
		t.Errorf("the call: %v, %v, fetched %d", err, request.Err(), le.Uint64(result))
	}
	if s.AnswersLost() {
		t.Error("the tier of a session that has failed counts as left")
	}

	p.start(1, 2, 2, 64, func(c *Config) { p.mem[1] = p.equip(c, 64) })
	a = p.access(0, 1)
	p.Pass(20 * millisecond)
	unknown := e.Stats.Unknown
	p.admit = func(_, to int, b []byte) bool {
		if to == 1 && isRequest(b) && late != nil { // while the successor's exchange runs
			p.Deliver(1, 0, late)
			late = nil
		}
		return true
	}
	for i := range uint64(2) {
		if got, err := p.fetchAdd(0, a, 0); err != nil || got != i {
			t.Errorf("the successor: %d, %v, want %d", got, err, i)
		}
	}
	if n := e.Stats.Executed - counts.Executed; n != 2 || e.Stats.Unknown != unknown+1 {
		t.Errorf("the successor: %d executed, %d frames of no session", n, e.Stats.Unknown-unknown)
	}
	p.atRest()
}

// A rank that starts again gets a place in the tables, though that of its earlier life is
// of use only when that is quiesced. Exchanges count from one again.
func TestRestartWithExchanges(t *testing.T) {
	p := newPrograms(t, 2, 64, nil)
	a := p.access(0, 1)
	for i := range uint64(3) {
		p.fetchAdd(0, a, i)
	}
	for life := uint64(2); life < 5; life++ {
		var quiescing []uint64
		p.held = func(id uint64) bool { quiescing = append(quiescing, id); return true }
		p.start(0, life, 2, 64, func(c *Config) { p.mem[0] = p.equip(c, 64) })
		p.Pass(20 * millisecond)
		a = p.access(0, 1)
		clear(p.mem[1])
		before := p.e[0].Stats.Executed
		for i := range uint64(3) {
			if got, err := p.fetchAdd(0, a, 0); err != nil || got != i {
				t.Fatalf("life %d: %d, %v", life, got, err)
			}
		}
		if p.e[0].Stats.Executed != before+3 {
			t.Errorf("life %d: no exchanges", life)
		}
		if len(quiescing) != 1 {
			t.Fatalf("life %d: %d sessions to fence", life, len(quiescing))
		}
		p.e[1].Quiesced(quiescing[0])
	}
	p.atRest()
}

// The lock of an origin that has died goes to others only when nothing of it can be on its
// way through the program any more.
func TestLocksAreHandedOnAfterTheFence(t *testing.T) {
	p := newPrograms(t, 3, 64, nil)
	a, b := p.access(0, 1), p.access(2, 1)
	p.e[0].Lock(a, true)
	p.Until(1000*millisecond, (*onesided.LockWait)(a).Met)
	p.e[2].Lock(b, true)
	p.Pass(10 * millisecond)
	var quiescing []uint64
	p.held = func(id uint64) bool { quiescing = append(quiescing, id); return true }
	p.Cut[0] = true
	p.Until(7500*millisecond, func() bool { return len(quiescing) > 0 })
	p.Pass(100 * millisecond)
	if (*onesided.LockWait)(b).Met() {
		t.Fatal("the lock was handed on before the fence")
	}
	p.e[1].Quiesced(quiescing[0])
	p.e[1].Quiesced(quiescing[0]) // once is enough
	p.Until(1000*millisecond, (*onesided.LockWait)(b).Met)
	if !b.Held() {
		t.Error("the lock was not handed on")
	}
	p.held = nil
	p.e[2].Unlock(b)
	p.flush(p.e[2], b)
	b.Unlocked()
	p.atRest()
}

// When the answers of a program get lost, the origin leaves the tier, says so once, and
// tries again later.
func TestTierIsLeftAndFoundAgain(t *testing.T) {
	p := newPrograms(t, 2, 64, nil)
	a := p.access(0, 1)
	e := p.e[0]
	p.mode = mute
	next := uint64(0)
	add := func() {
		t.Helper()
		if got, err := p.fetchAdd(0, a, 0); err != nil || got != next {
			t.Fatalf("fetched %d, want %d: %v", got, next, err)
		}
		next++
	}
	for range 5 {
		add()
	}
	if e.Stats.AnswersLost != 1 || e.Stats.Exchanges != 3 || e.Stats.Repeated != 3 || len(p.lost) != 1 || p.lost[0] != 1 || !e.Session(1).AnswersLost() {
		t.Errorf("after the first exchanges: told %v, %+v", p.lost, e.Stats)
	}
	p.Advance(p.Now + 1100*millisecond)
	for range 4 {
		add()
	}
	if e.Stats.AnswersLost != 2 || e.Stats.Exchanges != 6 || len(p.lost) != 1 {
		t.Errorf("after a second: told %v, %+v", p.lost, e.Stats)
	}
	p.mode = runs
	p.Advance(p.Now + 1100*millisecond)
	add()
	if e.Stats.Exchanges != 6 {
		t.Error("the second time the tier is not left for longer")
	}
	p.Advance(p.Now + 1000*millisecond)
	for range 4 {
		add()
	}
	if e.Stats.Exchanges != 10 || e.Stats.AnswersLost != 2 || e.Session(1).AnswersLost() {
		t.Errorf("the tier is not found again: %+v", e.Stats)
	}
	p.mode = mute
	for range 15 {
		add()
	}
	if e.Stats.Exchanges != 20 || e.Stats.AnswersLost != 3 {
		t.Errorf("the tier that answered before is left after %d exchanges: %+v", e.Stats.Exchanges-10, e.Stats)
	}
	p.mode = runs
	p.Advance(p.Now + 1100*millisecond)
	add()
	if e.Stats.Exchanges != 21 {
		t.Error("the tier is left for longer, though its program had answered")
	}
	p.atRest()
}

// Frames that are lost by chance do not make the origin leave the tier.
func TestLossDoesNotLeadOutOfTheTier(t *testing.T) {
	for _, loss := range []float64{0.02, 0.1, 0.2} {
		p := newPrograms(t, 2, 64, nil)
		a := p.access(0, 1)
		random := rand.New(rand.NewPCG(1, 2))
		begun := false
		p.admit = func(int, int, []byte) bool { return !begun || random.Float64() >= loss }
		for i := range uint64(20000) {
			if got, err := p.fetchAdd(0, a, 0); err != nil || got != i {
				t.Fatalf("fetched %d, want %d: %v", got, i, err)
			}
			begun = true
		}
		if s := &p.e[0].Stats; s.AnswersLost != 0 || s.Exchanges < 19990 || len(p.lost) > 0 {
			t.Errorf("of 20000 calls at a loss of %v, %d were exchanges, and the tier was left %d times", loss, s.Exchanges, s.AnswersLost)
		}
	}
}

// A program that is gone costs a repetition, and does not make the origin leave the tier.
func TestExchangesWithoutAProgram(t *testing.T) {
	p := newPrograms(t, 2, 64, nil)
	a := p.access(0, 1)
	p.admit = func(_, _ int, b []byte) bool { return !isRequest(b) || b[6]&wire.FlagUser != 0 }
	for i := range uint64(10) {
		if got, err := p.fetchAdd(0, a, 0); err != nil || got != i {
			t.Fatalf("fetched %d, want %d: %v", got, i, err)
		}
	}
	if s := &p.e[0].Stats; s.Taken != 10 || s.AnswersLost != 0 {
		t.Errorf("%+v", s)
	}
	p.atRest()
}

// A peer without a place in the tables is not offered the tier.
func TestNoPlaceInTheTables(t *testing.T) {
	p := newPrograms(t, 3, 64, func(c *Config) {
		if c.Rank == 1 {
			tables := express.HeapTables(1)
			c.Express = tables
		}
	})
	a, b := p.access(0, 1), p.access(2, 1)
	p.fetchAdd(0, a, 0)
	p.fetchAdd(2, b, 0)
	if p.e[0].Stats.Exchanges != 1 || p.e[2].Stats.Exchanges != 0 {
		t.Errorf("%d and %d exchanges", p.e[0].Stats.Exchanges, p.e[2].Stats.Exchanges)
	}
	frame := make([]byte, wire.HeaderLen+wire.RecordLen)
	wire.PutRecord(frame[wire.HeaderLen:], &wire.Record{Code: wire.CodePing}, 0)
	express.Request(frame, express.Header{Session: sessionAt(b).PeerID(), Exchange: 1, Try: 1, Records: 1}, nil)
	p.e[1].Receive(frame, 2)
	if p.e[1].Stats.ExpressDropped != 1 {
		t.Error("an express frame of a peer that is not offered the tier was not dropped")
	}
	p.atRest()
}

// A program that is interrupted while it holds a lock leaves it held. The origin's next
// frame brings the lock to those who wait for it, and so does the origin's death.
func TestInterruptedProgramHoldsALock(t *testing.T) {
	for _, tt := range []struct {
		name string
		dies bool
	}{
		{name: "program goes on"}, {name: "origin dies", dies: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPrograms(t, 3, 64, nil)
			interrupt := true
			p.tables[1].SetInterrupt(func() bool { return interrupt })
			a, b := p.access(0, 1), p.access(2, 1)
			p.Pass(20 * millisecond)
			begun := false
			p.admit = func(from, to int, frame []byte) bool {
				if from != 0 || !isRequest(frame) {
					return true
				}
				if !begun {
					begun = true
					p.tables[1].Serve(int(p.slots[1][le.Uint64(frame[8:])]), bytes.Clone(frame))
				}
				return false
			}
			old := make([]byte, 8)
			p.atOnce(0, a, true, []onesided.Call{
				{Code: wire.CodeGetAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Origin: word(1), Result: old},
			})
			p.e[0].Flush(a)
			p.Settle()
			p.atOnce(2, b, true, []onesided.Call{{Code: wire.CodePut, Disp: 8, Origin: word(2)}})
			p.e[2].Flush(b)
			p.Pass(100 * millisecond)
			if (*onesided.FlushWait)(b).Met() || p.reasons[twin.Locked] == 0 {
				t.Fatal("the lock was not held")
			}
			if p.Cut[0] = tt.dies; !tt.dies {
				// User space has nothing to go on with: it leaves the exchange to the program.
				p.admit = func(_, _ int, b []byte) bool { return !isRequest(b) || b[6]&wire.FlagUser != 0 }
				s := &p.e[1].Stats
				p.Until(1000*millisecond, func() bool { return s.ExpressDropped > 0 })
				if (*onesided.FlushWait)(a).Met() || le.Uint64(p.mem[1]) != 0 {
					t.Errorf("user space: %d dropped, %d", s.ExpressDropped, le.Uint64(p.mem[1]))
				}
				interrupt, p.admit = false, nil
				p.Until(1000*millisecond, (*onesided.FlushWait)(a).Met)
				if err := a.TakeError(); err != nil || le.Uint64(p.mem[1]) != 1 {
					t.Errorf("the interrupted request: %v, %d", err, le.Uint64(p.mem[1]))
				}
				a.Unlocked()
				if p.reasons[twin.Awaited] != 1 {
					t.Errorf("%d requests were awaited", p.reasons[twin.Awaited])
				}
			}
			p.Until(7500*millisecond, (*onesided.FlushWait)(b).Met)
			b.Unlocked()
			if le.Uint64(p.mem[1][8:]) != 2 {
				t.Error("the second request has no effect")
			}
			p.atRest()
		})
	}
}

// A program that is about to note that it holds a lock, when somebody begins to wait, and is
// then interrupted, does not keep the lock from them when its origin dies.
func TestProgramNotesALockAfterSomebodyWaits(t *testing.T) {
	p := newPrograms(t, 3, 64, nil)
	p.tables[1].SetInterrupt(func() bool { return true })
	a, b := p.access(0, 1), p.access(2, 1)
	p.Pass(20 * millisecond)
	var note []byte // which window's lock the exchange holds
	p.admit = func(from, to int, frame []byte) bool {
		if from != 0 || !isRequest(frame) {
			return true
		}
		if note == nil {
			slot := p.slots[1][le.Uint64(frame[8:])]
			p.tables[1].Serve(int(slot), bytes.Clone(frame))
			note = p.memory[1][int(slot)*express.SlotLen+slotField(t, "locked"):][:8]
		}
		return false
	}
	p.atOnce(0, a, true, []onesided.Call{{Code: wire.CodePut, Origin: word(1)}})
	p.e[0].Flush(a)
	p.Settle()
	noted := le.Uint64(note)
	if noted != testWindow+1 {
		t.Fatalf("the program holds the lock of window %d", int64(noted)-1)
	}
	le.PutUint64(note, 0)
	p.atOnce(2, b, true, []onesided.Call{{Code: wire.CodePut, Origin: word(2)}})
	p.e[2].Flush(b)
	p.Settle()
	le.PutUint64(note, noted)
	p.Cut[0] = true
	p.Until(7500*millisecond, (*onesided.FlushWait)(b).Met)
	b.Unlocked()
	p.atRest()
}

// slotField returns where in a slot of the tables a field is.
func slotField(t *testing.T, name string) int {
	for _, f := range express.SlotFields() {
		if f.Name == name {
			return f.Offset
		}
	}
	t.Fatalf("a slot has no field %q", name)
	return 0
}
