package device

import (
	"math"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/device/seat"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// answering is a peer on a stage. It answers a question after so many looks at the device, or once the
// caller sleeps, if that comes first. It is the condition that its answer has come.
type answering struct {
	*stage
	poller *Poller
	after  int

	// guarded by the stage's lock
	crowd  *crowd // what a caller that looks takes its processor for; nil: what it finds
	left   int    // looks before the answer
	asked  bool
	sleeps int // of callers
}

func newAnswering(t *testing.T, c PollerConfig, after int) *answering {
	a := &answering{stage: newStage(t), after: after}
	a.receiving = func() { a.look(false) }
	a.sleeping = func() { a.look(true) }
	p := newStaged(t, a.stage, c)
	p.tell(seat.Enters) // so that the background goroutine does not drive
	t.Cleanup(func() { p.tell(seat.Exits) })
	a.mu.Lock() // the background goroutine looks
	a.poller = p
	a.mu.Unlock()
	return a
}

func (a *answering) look(sleeps bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.crowd != nil && a.poller != nil && !sleeps {
		a.poller.crowd = *a.crowd
	}
	if sleeps {
		if a.poller == nil || !a.poller.is("a caller is in bed") {
			return
		}
		a.sleeps++
		a.left = 0
	}
	if a.left--; a.asked && a.left < 0 {
		a.asked, a.arrived = false, append(a.arrived, make([]byte, wire.HeaderLen))
		select {
		case a.woken <- struct{}{}:
		default:
		}
	}
}

func (a *answering) Met() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.asked && len(a.arrived) == 0
}

// ask returns how often callers sleep while they wait for so many answers, one after the other.
func (a *answering) ask(times int) (sleeps int) {
	a.mu.Lock()
	a.sleeps = 0
	a.mu.Unlock()
	for range times {
		a.mu.Lock()
		a.asked, a.left = true, a.after
		a.mu.Unlock()
		if err := a.poller.Wait(a.t.Context(), a); err != nil {
			a.t.Fatal(err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sleeps
}

// A caller sleeps where it may not poll for long enough or somebody computes, polls where sleeping is
// dearer than any wait, and else learns how long to poll.
func TestCallersPollForAsLongAsItHelps(t *testing.T) {
	const never, looks, times = 1 << 30, 2000, 100
	alone, beside := crowd{}, crowd{until: math.MaxInt64} // whatever else this machine does
	for _, c := range []struct {
		what        string
		crowd       crowd
		config      PollerConfig
		after       int
		least, most int // sleeps, of the second half
	}{
		{"it may not poll", alone, PollerConfig{Spin: 1, Wake: time.Second}, never, times, times},
		{"sleeping is dear", alone, PollerConfig{Spin: time.Hour, Wake: time.Hour}, looks / 10, 0, 0},
		{"polling helps", alone, PollerConfig{Spin: time.Hour, Wake: 1}, looks, 0, times / 2},
		{"somebody computes on its processor", beside, PollerConfig{Spin: time.Hour, Wake: 1}, never, times, times},
	} {
		t.Run(c.what, func(t *testing.T) {
			a := newAnswering(t, c.config, c.after)
			a.mu.Lock()
			a.crowd = &c.crowd
			a.mu.Unlock()
			a.ask(times)
			if n := a.ask(times); n < c.least || n > c.most {
				t.Errorf("in %d waits the caller sleeps %d times, want %d to %d", times, n, c.least, c.most)
			}
		})
	}
}
