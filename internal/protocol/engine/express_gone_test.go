package engine

import (
	"errors"
	"testing"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/twin"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// When a window goes while an exchange that names it is interrupted, what was done before
// is not done again, calls on other windows take effect, and those on the window that is
// gone are refused.
func TestWindowGoesDuringAnExchange(t *testing.T) {
	const other = testWindow + 1
	for _, c := range []struct {
		name     string
		gone     uint32
		loses    bool   // the first answer
		refused  bool   // the calls on the other window
		one, two uint64 // in the two windows at the end
	}{
		{name: "the other window", gone: other, refused: true, one: 3 + 5},
		{name: "the other window, and an answer is lost", gone: other, loses: true, refused: true, one: 3 + 5},
		{name: "the window of the call that was made", gone: testWindow, one: 3, two: 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPrograms(t, 2, 64, nil)
			second := p.show(1, 2, p.e[1].Windows(), other, 64)
			a := p.access(0, 1)
			b := p.e[0].OpenAccess(p.dial(0, 1), other)
			b.SetReach(true)
			p.Pass(20 * millisecond)
			records := 0
			p.tables[1].SetInterrupt(func() bool { records++; return records == 2 })
			p.stopped[1] = true // user space does not see the frame yet

			add := onesided.Call{Code: wire.CodeGetAccumulate, Op: datatype.Sum, Basic: datatype.BasicUint64}
			var requests [3]onesided.Request
			results := [3][]byte{word(99), word(99), word(99)}
			for i, access := range []*onesided.Access{a, b, a} {
				call := add
				call.Origin, call.Result, call.Request = word(uint64(3+i)), results[i], &requests[i]
				p.atOnce(0, access, false, []onesided.Call{call})
			}
			p.atOnce(0, b, false, []onesided.Call{{Code: wire.CodePut, Disp: 8, Origin: word(7)}})
			p.e[0].Flush(b)
			p.Settle()
			if n := le.Uint64(p.mem[1]); n != 3 || records != 2 {
				t.Fatalf("the sum is %d when record %d is to be executed", n, records-1)
			}

			p.free(1, c.gone)
			p.stopped[1] = false
			p.admit = func(_, _ int, frame []byte) bool {
				lost := c.loses && isAnswer(frame)
				c.loses = c.loses && !lost
				return !lost
			}
			errA, errB := p.flush(p.e[0], a), p.flush(p.e[0], b)
			if one, two := le.Uint64(p.mem[1]), le.Uint64(second); one != c.one || two != c.two {
				t.Errorf("the sums are %d and %d, want %d and %d", one, two, c.one, c.two)
			}
			for i, old := range []uint64{0, 0, 3} {
				refused := i == 1 && c.refused || i == 2 && !c.refused
				if refused {
					old = 99
				}
				if err := requests[i].Err(); errors.Is(err, mpierr.Win) != refused || le.Uint64(results[i]) != old {
					t.Errorf("call %d: %v, fetched %d", i, err, le.Uint64(results[i]))
				}
			}
			if errA != nil || errors.Is(errB, mpierr.Win) != c.refused {
				t.Errorf("flushes: %v, %v", errA, errB)
			}
			if s := &p.e[0].Stats; s.Executed != 1 || s.Taken != 0 || s.BadAnswers != 0 {
				t.Errorf("%d executed, %d taken, %d bad answers", s.Executed, s.Taken, s.BadAnswers)
			}
			p.atRest()
		})
	}
}

// A window that goes while an exchange holds its lock takes the lock along: the origin hears
// that the window is gone, and nothing waits.
func TestWindowGoesWithItsLock(t *testing.T) {
	const other = testWindow + 1
	p := newPrograms(t, 2, 64, nil)
	p.show(1, 2, p.e[1].Windows(), other, 64)
	a := p.access(0, 1)
	b := p.e[0].OpenAccess(p.dial(0, 1), other)
	b.SetReach(true)
	p.Pass(20 * millisecond)
	p.tables[1].SetInterrupt(func() bool { return true })
	p.stopped[1] = true
	var request onesided.Request
	p.atOnce(0, b, true, []onesided.Call{
		{Code: wire.CodePut, Origin: word(1)}, {Code: wire.CodeGet, Result: make([]byte, 8), Request: &request},
	})
	p.e[0].Flush(b)
	p.Settle()
	if p.reasons[twin.Interrupted] == 0 {
		t.Fatal("the exchange was not interrupted")
	}
	p.free(1, other)
	p.stopped[1] = false
	if err := p.flush(p.e[0], b); !errors.Is(err, mpierr.Win) || !errors.Is(request.Err(), mpierr.Win) {
		t.Errorf("the flush: %v, the get: %v", err, request.Err())
	}
	b.Unlocked()
	p.tables[1].SetInterrupt(nil)
	p.atOnce(0, a, true, []onesided.Call{{Code: wire.CodePut, Origin: word(2)}})
	if err := p.flush(p.e[0], a); err != nil || le.Uint64(p.mem[1]) != 2 || p.e[0].Stats.Executed != 2 {
		t.Errorf("the next: %v, %d in memory, %d executed", err, le.Uint64(p.mem[1]), p.e[0].Stats.Executed)
	}
	a.Unlocked()
	p.atRest()
}
