package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// fetchAdd adds 1 to the element at disp, and returns what was there.
func (p *programs) fetchAdd(from int, a *onesided.Access, disp uint64) (uint64, error) {
	p.T.Helper()
	result := make([]byte, 8)
	p.issue(p.e[from], &onesided.Call{
		Access: a, Code: wire.CodeGetAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Disp: disp, Origin: word(1), Result: result,
	})
	err := p.flush(p.e[from], a)
	return le.Uint64(result), err
}

// atOnce makes calls, under an exclusive lock if locked is set, before anything is sent.
func (p *programs) atOnce(from int, a *onesided.Access, locked bool, calls []onesided.Call) {
	p.T.Helper()
	e := p.e[from]
	if locked && !e.Lock(a, true) {
		p.T.Fatal("no room for a lock")
	}
	for i := range calls {
		calls[i].Access = a
		if done, err := e.Issue(&calls[i]); !done || err != nil {
			p.T.Fatal(done, err)
		}
	}
	if locked && !e.Unlock(a) {
		p.T.Fatal("the unlock does not fit")
	}
}

// Calls that are waited for travel as one frame and its answer, whoever executes them.
func TestExchanges(t *testing.T) {
	value, result := word(5), make([]byte, 8)
	pair := make([]byte, 16)
	tests := []struct {
		name   string
		lock   bool
		calls  []onesided.Call
		want   uint64 // in result
		memory uint64
	}{
		{name: "put", calls: []onesided.Call{{Code: wire.CodePut, Origin: value}}, memory: 5},
		{name: "get", calls: []onesided.Call{{Code: wire.CodeGet, Result: result}}, want: 7, memory: 7},
		{name: "accumulate", calls: []onesided.Call{{Code: wire.CodeAccumulate, Op: datatype.Max, Basic: datatype.BasicInt64, Origin: value}}, memory: 7},
		{name: "fetch and op", calls: []onesided.Call{{Code: wire.CodeGetAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Origin: value, Result: result}}, want: 7, memory: 12},
		{name: "fetch", calls: []onesided.Call{{Code: wire.CodeGetAccumulate, Op: datatype.NoOp, Basic: datatype.BasicUint64, Result: result}}, want: 7, memory: 7},
		{name: "compare and swap", calls: []onesided.Call{{Code: wire.CodeCompareSwap, Basic: datatype.BasicUint64, Compare: word(7), Origin: value, Result: result}}, want: 7, memory: 5},
		{name: "several", calls: []onesided.Call{
			{Code: wire.CodePut, Disp: 8, Origin: word(1)}, {Code: wire.CodeGet, Disp: 8, Result: pair}, {Code: wire.CodeGet, Result: result},
		}, want: 7, memory: 7},
		{name: "lock, put, unlock", lock: true, calls: []onesided.Call{{Code: wire.CodePut, Origin: value}}, memory: 5},
		{name: "lock, get, put, unlock", lock: true, calls: []onesided.Call{{Code: wire.CodeGet, Result: result}, {Code: wire.CodePut, Origin: value}}, want: 7, memory: 5},
	}
	for _, mode := range []programMode{runs, absent} {
		for _, tt := range tests {
			t.Run(fmt.Sprintf("mode %d/%s", mode, tt.name), func(t *testing.T) {
				p := newPrograms(t, 2, 64, nil)
				p.mode = mode
				a := p.access(0, 1)
				p.Pass(millisecond)
				for round := range 3 {
					copy(p.mem[1], word(7))
					clear(result)
					before := p.Frames
					calls := slices.Clone(tt.calls)
					p.atOnce(0, a, tt.lock, calls)
					if err := p.flush(p.e[0], a); err != nil {
						t.Fatal(err)
					}
					a.Unlocked()
					if n := p.Frames - before; n != map[programMode]int{runs: 1, absent: 2}[mode] {
						t.Errorf("round %d: %d frames reached an engine", round, n)
					}
					if got := le.Uint64(result); got != tt.want || le.Uint64(p.mem[1]) != tt.memory {
						t.Errorf("round %d: result %d, memory %d", round, got, le.Uint64(p.mem[1]))
					}
				}
				want := map[programMode][2]uint64{runs: {3, 0}, absent: {0, 3}}[mode] // user space takes bundles
				if s := &p.e[0].Stats; [2]uint64{s.Executed, s.Taken} != want || s.Exchanges != 3 || s.BadAnswers != 0 {
					t.Errorf("%+v", s)
				}
				p.atRest()
			})
		}
	}
}

// Bundles that the program cannot execute travel as ever.
func TestWhatIsNoExchange(t *testing.T) {
	p := newPrograms(t, 2, 1<<16, nil)
	a := p.access(0, 1)
	e := p.e[0]
	tests := []struct {
		name string
		call onesided.Call
	}{
		{"floating point", onesided.Call{Code: wire.CodeAccumulate, Op: datatype.Sum, Basic: datatype.BasicFloat64, Origin: word(1)}},
		{"torn", onesided.Call{Code: wire.CodePut, Disp: 4, Origin: make([]byte, 24)}},
		{"long", onesided.Call{Code: wire.CodePut, Origin: make([]byte, 1300)}},
		{"long result", onesided.Call{Code: wire.CodeGet, Result: make([]byte, 1300)}},
		{"many elements", onesided.Call{Code: wire.CodeAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Origin: make([]byte, 17*8)}},
	}
	for _, tt := range tests {
		tt.call.Access = a
		p.issue(e, &tt.call)
		if err := p.flush(e, a); err != nil {
			t.Fatal(err)
		}
		if e.Stats.Exchanges != 0 {
			t.Fatalf("%s: an exchange", tt.name)
		}
	}
	for range express.MaxRecords + 1 {
		p.issue(e, &onesided.Call{Access: a, Code: wire.CodePut, Origin: word(1)})
	}
	if err := p.flush(e, a); err != nil || e.Stats.Exchanges != 0 {
		t.Errorf("too many records: %v, %d exchanges", err, e.Stats.Exchanges)
	}
	p.atRest()
}

// A bundle for which nobody waits yet is an exchange, unless bundles lately began before others were
// applied: in a stream all that follows would wait for it.
func TestStreamsAreNoExchanges(t *testing.T) {
	p := newPrograms(t, 2, 64, nil)
	a := p.access(0, 1)
	e := p.e[0]
	p.Pass(millisecond)
	put := func() (exchange bool) {
		before := e.Stats.Exchanges
		p.atOnce(0, a, false, []onesided.Call{{Code: wire.CodePut, Origin: word(1)}})
		e.Tick()
		return e.Stats.Exchanges > before
	}
	flush := func() {
		if err := p.flush(e, a); err != nil {
			t.Fatal(err)
		}
	}
	if !put() {
		t.Error("the first call is no exchange")
	}
	for window := range 3 {
		if put() {
			t.Errorf("window %d: two exchanges at a time", window)
		}
		flush()
		if put() {
			t.Errorf("window %d: all of it waits for its first call", window)
		}
	}
	put()
	flush()
	for n := 1; n <= 6; n++ { // a flush of a bundle that has left sends a ping, which does not count
		if exchange := put(); exchange != (n >= 4) {
			t.Errorf("call %d after the stream is an exchange: %v", n, exchange)
		}
		flush()
	}
	p.atRest()
}

// Whatever frames are lost or come twice, each exchange takes effect once.
func TestExchangesTakeEffectOnce(t *testing.T) {
	const rounds = 200
	for _, mode := range []programMode{runs, absent} {
		for _, lossy := range []string{"requests", "answers", "both", "all twice"} {
			t.Run(fmt.Sprintf("mode %d/%s", mode, lossy), func(t *testing.T) {
				p := newPrograms(t, 2, 64, nil)
				p.mode = mode
				rng := rand.New(rand.NewPCG(1, uint64(len(lossy))))
				p.admit = func(from, to int, b []byte) bool {
					// Where user space takes the request, its bundles answer too.
					answer := isAnswer(b) || mode == absent && from == 1 && kindOfFrame(b) > wire.KindHelloAck
					switch {
					case !isExpress(b) && !answer:
						return true
					case lossy == "all twice":
						if isRequest(b) && rng.IntN(2) == 0 {
							p.e[to].Receive(bytes.Clone(b), PathID(from))
						}
						if isAnswer(b) {
							p.e[to].Receive(bytes.Clone(b), PathID(from))
						}
						return true
					case lossy == "requests" && answer, lossy == "answers" && isRequest(b):
						return true
					}
					return rng.IntN(4) > 0
				}
				a := p.access(0, 1)
				for i := range uint64(rounds) {
					if got, err := p.fetchAdd(0, a, 0); err != nil || got != i {
						t.Fatalf("round %d: %d, %v", i, got, err)
					}
				}
				s := &p.e[0].Stats
				if lossy != "all twice" && s.Repeated == 0 || s.Executed+s.Taken != s.Exchanges || (mode == runs) != (s.Executed > 0) {
					t.Errorf("%+v", s)
				}
				p.admit = nil
				p.atRest()
			})
		}
	}
}

// An answer that comes after its exchange is over changes nothing, nor does an answer that
// contradicts the exchange, whether a program hands it over or it comes by a socket.
func TestAnswersThatAreNone(t *testing.T) {
	t.Run("by a socket", func(t *testing.T) { answersThatAreNone(t, func(e *Engine, b []byte) { e.Receive(b, 1) }) })
	t.Run("handed over", func(t *testing.T) { answersThatAreNone(t, (*Engine).ReceiveHanded) })
}

// A request is not taken from a program that hands answers over: nobody has verified it.
func TestRequestIsNotHandedOver(t *testing.T) {
	p := newPrograms(t, 2, 64, nil)
	a := p.access(0, 1)
	p.fetchAdd(0, a, 0)
	request := make([]byte, wire.HeaderLen+wire.RecordSize(8))
	copy(wire.PutRecord(request[wire.HeaderLen:], &wire.Record{Code: wire.CodePut, Window: testWindow}, 8), "12345678")
	express.Request(request, express.Header{Session: sessionAt(a).ID(), Exchange: 1, Try: 1, Records: 1}, nil)
	s, before := &p.e[0].Stats, p.e[0].Stats.Faults[wire.BadFlags]
	p.e[0].ReceiveHanded(request)
	if s.Faults[wire.BadFlags] != before+1 || le.Uint64(p.mem[0]) != 0 {
		t.Errorf("%d frames with unknown flags, memory %x", s.Faults[wire.BadFlags]-before, p.mem[0][:8])
	}
}

func answersThatAreNone(t *testing.T, receive func(e *Engine, b []byte)) {
	p := newPrograms(t, 2, 64, nil)
	a := p.access(0, 1)
	p.fetchAdd(0, a, 0)
	s := &p.e[0].Stats
	late := s.LateAnswers
	answer := func(h express.Header, n int) []byte {
		b := make([]byte, wire.HeaderLen+n)
		h.Session, h.Flags = sessionAt(a).ID(), wire.FlagResponse
		express.Request(b, h, nil)
		return b
	}
	p.admit = func(_, _ int, b []byte) bool { return !isExpress(b) }
	result := make([]byte, 8)
	p.issue(p.e[0], &onesided.Call{Access: a, Code: wire.CodeGet, Result: result})
	p.e[0].Flush(a)
	p.Settle()
	for _, b := range [][]byte{answer(express.Header{Exchange: 1, Try: 1}, 8), answer(express.Header{Exchange: 3, Try: 1}, 8)} {
		receive(p.e[0], b)
		if late++; s.LateAnswers != late {
			t.Errorf("%d late answers, want %d", s.LateAnswers, late)
		}
	}
	faults := s.Faults[wire.BadFrame]
	for _, b := range [][]byte{
		answer(express.Header{Exchange: 2, Try: 2}, 8), answer(express.Header{Exchange: 2, Try: 1}, 0), answer(express.Header{Exchange: 2, Try: 1}, 16),
		answer(express.Header{Exchange: 2, Try: 1, Fate: 3}, 8),
	} {
		receive(p.e[0], b)
		if faults++; s.Faults[wire.BadFrame] != faults {
			t.Errorf("%d malformed frames, want %d", s.Faults[wire.BadFrame], faults)
		}
	}
	unknown := answer(express.Header{Exchange: 2, Try: 1}, 8)
	unknown[8]++
	express.Sign(unknown, nil)
	before := s.Unknown
	if receive(p.e[0], unknown); s.Unknown != before+1 {
		t.Error("an answer in a session that does not exist is not counted")
	}
	if (*onesided.FlushWait)(a).Met() {
		t.Fatal("a forged answer was taken")
	}
	p.admit = nil
	p.Until(1000*millisecond, (*onesided.FlushWait)(a).Met)
	if le.Uint64(result) != 1 {
		t.Errorf("got %d", le.Uint64(result))
	}
	p.atRest()
}

// A request for a lock that others hold is taken as a bundle, and waits its turn. Whoever
// waits gets the lock when a program gives it up.
func TestExchangeWaitsForALock(t *testing.T) {
	for _, mode := range []programMode{runs, absent} {
		p := newPrograms(t, 3, 64, nil)
		p.mode = mode
		a, b := p.access(0, 1), p.access(2, 1)
		own := p.e[1].OpenLocal(p.e[1].Windows().Lookup(testWindow))
		p.e[1].Lock(own, true)
		put := func(rank int, a *onesided.Access, disp, v uint64) {
			p.atOnce(rank, a, true, []onesided.Call{{Code: wire.CodePut, Disp: disp, Origin: word(v)}})
			p.e[rank].Flush(a)
		}
		put(0, a, 0, 1)
		put(2, b, 8, 2)
		p.Pass(20 * millisecond)
		if (*onesided.FlushWait)(a).Met() || (*onesided.FlushWait)(b).Met() {
			t.Fatal("put without the lock")
		}
		if p.e[0].Stats.Taken != 1 || p.e[2].Stats.Taken != 1 {
			t.Errorf("%d and %d exchanges were taken as bundles", p.e[0].Stats.Taken, p.e[2].Stats.Taken)
		}
		p.e[1].Unlock(own)
		p.Until(1000*millisecond, func() bool { return (*onesided.FlushWait)(a).Met() && (*onesided.FlushWait)(b).Met() })
		a.Unlocked()
		b.Unlocked()
		if le.Uint64(p.mem[1]) != 1 || le.Uint64(p.mem[1][8:]) != 2 {
			t.Errorf("memory %v", p.mem[1][:16])
		}
		put(0, a, 0, 3) // the word is free again
		p.Until(1000*millisecond, (*onesided.FlushWait)(a).Met)
		a.Unlocked()
		if mode == runs && p.e[0].Stats.Executed != 1 {
			t.Error("the program does not get the lock any more")
		}
		p.atRest()
	}
}

// Several origins lock, read, write and unlock in single frames, others lock in bundles.
func TestExchangesExclude(t *testing.T) {
	const ranks, rounds = 4, 50
	p := newPrograms(t, ranks, 64, nil)
	rng := rand.New(rand.NewPCG(3, 3))
	p.admit = func(_, _ int, _ []byte) bool {
		p.mode = programMode(rng.IntN(2))
		return rng.IntN(20) > 0
	}
	for range rounds {
		for r := 1; r < ranks; r++ {
			a := p.access(r, 0)
			a.SetReach(rng.IntN(4) > 0)
			e, old := p.e[r], make([]byte, 8)
			calls := []onesided.Call{
				{Code: wire.CodeGet, Result: old},
				{Code: wire.CodeAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Origin: word(1)},
			}
			if rng.IntN(3) == 0 { // the lock outlives its bundle
				calls[1].Access = a
				p.Until(10_000*millisecond, func() bool { return e.Lock(a, true) })
				p.issue(e, &calls[1])
				p.Until(10_000*millisecond, func() bool { return e.Unlock(a) })
			} else {
				p.atOnce(r, a, true, calls)
			}
			if err := p.flush(e, a); err != nil {
				t.Fatal(err)
			}
			a.Unlocked()
		}
	}
	if got := le.Uint64(p.mem[0]); got != (ranks-1)*rounds {
		t.Errorf("%d, want %d", got, (ranks-1)*rounds)
	}
	p.admit = nil
	p.atRest()
}

// Bundles and exchanges keep their order among each other, and bundles come through in
// pieces, too.
func TestExchangesAndBundlesKeepTheirOrder(t *testing.T) {
	const memory = 1 << 15
	for seed := range uint64(8) {
		p := newPrograms(t, 2, memory, nil)
		rng := rand.New(rand.NewPCG(seed, 9))
		type delayed struct {
			from, to int
			b        []byte
		}
		var late []delayed
		narrow := false
		p.admit = func(from, to int, b []byte) bool {
			if kindOfFrame(b) <= wire.KindHelloAck {
				return true
			}
			p.mode = programMode(rng.IntN(3))
			switch {
			case narrow && len(b) > wire.MinPayload, rng.IntN(12) == 0:
				return false
			case rng.IntN(12) == 0:
				late = append(late, delayed{from, to, bytes.Clone(b)})
				return false
			case rng.IntN(12) == 0 && len(late) > 0: // duplicates and late ones
				d := late[rng.IntN(len(late))]
				p.e[d.to].Receive(bytes.Clone(d.b), PathID(d.from))
			}
			return true
		}
		a := p.access(0, 1)
		want := make([]byte, memory)
		for i := range uint64(60) {
			old := make([]byte, 8)
			at := uint64(rng.IntN(4)) * 8
			// Replacing twice in a row at one place shows their order.
			for range rng.IntN(3) {
				v := word(rng.Uint64())
				p.issue(p.e[0], &onesided.Call{Access: a, Code: wire.CodeAccumulate, Op: datatype.Replace, Basic: datatype.BasicUint64, Disp: at, Origin: v})
				copy(want[at:], v)
				if rng.IntN(2) == 0 {
					p.e[0].Tick()
				}
			}
			before := le.Uint64(want[at:])
			p.issue(p.e[0], &onesided.Call{Access: a, Code: wire.CodeGetAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Disp: at, Origin: word(i), Result: old})
			le.PutUint64(want[at:], before+i)
			if rng.IntN(8) == 0 {
				block := make([]byte, 1+rng.IntN(4000))
				for j := range block {
					block[j] = byte(rng.Uint32())
				}
				p.issue(p.e[0], &onesided.Call{Access: a, Code: wire.CodePut, Disp: 4096, Origin: block})
				copy(want[4096:], block)
				narrow = rng.IntN(2) == 0
			}
			if rng.IntN(4) > 0 {
				if err := p.flush(p.e[0], a); err != nil {
					t.Fatal(err)
				}
				if got := le.Uint64(old); got != before {
					t.Fatalf("seed %d, round %d: fetched %d, want %d", seed, i, got, before)
				}
			}
		}
		if err := p.flush(p.e[0], a); err != nil || !bytes.Equal(p.mem[1], want) {
			t.Fatalf("seed %d: %v, the memory is not what it should be", seed, err)
		}
		if s := &p.e[0].Stats; s.Executed == 0 || s.BadAcks+s.BadAnswers+p.e[1].Stats.OutOfSpan != 0 {
			t.Errorf("seed %d: %+v", seed, s)
		}
		narrow, p.admit = false, nil
		p.atRest()
	}
}

// An exchange is over when the target has taken and applied it as a bundle, though the answer
// that says so is lost. An answer that comes later changes nothing.
func TestAcknowledgementEndsAnExchange(t *testing.T) {
	p := newPrograms(t, 2, 64, nil)
	a := p.access(0, 1)
	p.tables[1].Retract(testWindow) // nobody can execute anything
	var answers [][]byte
	p.admit = func(_, _ int, b []byte) bool {
		if isAnswer(b) {
			answers = append(answers, bytes.Clone(b))
		}
		return !isAnswer(b)
	}
	for i := range uint64(3) {
		if got, err := p.fetchAdd(0, a, 0); err != nil || got != i {
			t.Fatalf("fetched %d, want %d: %v", got, i, err)
		}
	}
	for _, b := range answers {
		p.e[0].Receive(b, 1)
	}
	if s := &p.e[0].Stats; s.Taken != 3 || s.Executed != 0 || s.LateAnswers != uint64(len(answers)) {
		t.Errorf("%d answers; %+v", len(answers), s)
	}
	p.admit = nil
	p.atRest()
}

// Neither side of an exchange allocates anything.
func TestExchangesDoNotAllocate(t *testing.T) {
	p := newPrograms(t, 2, 64, nil)
	p.mode = absent
	a := p.access(0, 1)
	value, result := word(1), make([]byte, 8)
	var call onesided.Call
	tests := []struct {
		name string
		call onesided.Call
	}{
		{"put", onesided.Call{Code: wire.CodePut, Origin: value}},
		{"get", onesided.Call{Code: wire.CodeGet, Result: result}},
		{"accumulate", onesided.Call{Code: wire.CodeAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Origin: value}},
		{"fetch and op", onesided.Call{Code: wire.CodeGetAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64, Origin: value, Result: result}},
		{"compare and swap", onesided.Call{Code: wire.CodeCompareSwap, Basic: datatype.BasicUint64, Compare: value, Origin: value, Result: result}},
	}
	for _, tt := range tests {
		for _, locked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, locked %t", tt.name, locked), func(t *testing.T) {
				before := p.e[0].Stats.Taken
				n := testing.AllocsPerRun(200, func() {
					call = tt.call
					call.Access = a
					if locked && !p.e[0].Lock(a, true) {
						t.Fatal("no room for a lock")
					}
					if done, err := p.e[0].Issue(&call); !done || err != nil {
						t.Fatal(done, err)
					}
					if locked && !p.e[0].Unlock(a) {
						t.Fatal("the unlock does not fit")
					}
					p.e[0].Flush(a)
					for !(*onesided.FlushWait)(a).Met() {
						p.Step()
					}
					a.Unlocked()
					p.Advance(p.Now + 1000)
				})
				if n != 0 {
					t.Errorf("%v allocations an exchange", n)
				}
				if got := p.e[0].Stats.Taken - before; got != 201 {
					t.Errorf("%d exchanges", got)
				}
			})
		}
	}
	p.atRest()
}
