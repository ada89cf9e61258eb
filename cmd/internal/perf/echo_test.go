package perf

import (
	"testing"
	"time"
)

// lateLine answers nothing until a time, and then everything.
type lateLine struct {
	line
	until   time.Time
	unheard []uint64
	room    int
}

func (l *lateLine) payload() int { return l.room }

func (l *lateLine) send(number uint64, _, _ int) error {
	l.unheard = append(l.unheard, number)
	return nil
}

func (l *lateLine) receive(numbers []uint64) (n int, err error) {
	if time.Now().After(l.until) {
		n = copy(numbers, l.unheard)
		l.unheard = l.unheard[n:]
	}
	return n, nil
}

// An echo goes on where the other side has had to wait for a processor.
func TestEchoWaitsForABusyMachine(t *testing.T) {
	t.Parallel() // the most of it is waiting
	s := &side{line: &lateLine{room: 1472, until: time.Now().Add(2 * mostLosses * lossAfter)}, plan: &Plan{}}
	var sample FloorSample
	if err := s.echo(FloorPoint{Kind: Echo, Bytes: 8}, &sample); err != nil {
		t.Fatal(err)
	}
	if sample.Lost == 0 {
		t.Error("no loss was suspected: the answers came too early")
	}
}
