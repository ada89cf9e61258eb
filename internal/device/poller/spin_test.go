package poller

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xdprma/xdprma/internal/device/seat"
	"github.com/xdprma/xdprma/internal/lab/testenv"
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
	yields int // of callers, unless the test has them yield to something else
	others int // frames for others to come, one every 20 looks
	looks  int
}

func newAnswering(t *testing.T, c Config, after int) *answering {
	a := &answering{stage: newStage(t), after: after}
	a.receiving = func() { a.look(false) }
	a.sleeping = func() { a.look(true) }
	if c.yield == nil {
		c.yield = a.yield
	}
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
	if a.looks++; a.others > 0 && a.looks%20 == 0 {
		a.arrived = append(a.arrived, make([]byte, wire.HeaderLen))
		a.others--
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

func (a *answering) yield() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.yields++
}

func (a *answering) Met() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.asked && len(a.arrived) == 0
}

// ask returns how often callers sleep and yield while they wait for so many answers, one after the other.
func (a *answering) ask(times int) (sleeps, yields int) {
	ctx, cancel := context.WithTimeout(a.t.Context(), testenv.Limit)
	defer cancel()
	a.mu.Lock()
	a.sleeps, a.yields = 0, 0
	a.mu.Unlock()
	for range times {
		a.mu.Lock()
		a.asked, a.left = true, a.after
		a.mu.Unlock()
		if err := a.poller.Wait(ctx, a); err != nil {
			a.t.Fatal(err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sleeps, a.yields
}

// A caller sleeps where it may not poll for long enough or somebody computes, polls where sleeping is
// dearer than any wait, and else learns how long to poll.
func TestCallersPollForAsLongAsItHelps(t *testing.T) {
	const never, looks, times = 1 << 30, 2000, 100
	alone, beside := crowd{}, crowd{until: math.MaxInt64} // whatever else this machine does
	for _, c := range []struct {
		what        string
		crowd       crowd
		config      Config
		after       int
		least, most int // sleeps, of the second half
		yields      bool
	}{
		{"it may not poll", alone, Config{Spin: 1, Wake: time.Second}, never, times, times, false},
		{"sleeping is dear", alone, Config{Spin: time.Hour, Wake: time.Hour}, looks, 0, 0, true},
		{"polling helps", alone, Config{Spin: time.Hour, Wake: 1}, looks, 0, times / 2, true},
		{"somebody computes on its processor", beside, Config{Spin: time.Hour, Wake: 1}, never, times, times, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			a := newAnswering(t, c.config, c.after)
			a.mu.Lock()
			a.crowd = &c.crowd
			a.mu.Unlock()
			a.ask(times)
			sleeps, yields := a.ask(times)
			if sleeps < c.least || sleeps > c.most {
				t.Errorf("in %d waits the caller sleeps %d times, want %d to %d", times, sleeps, c.least, c.most)
			}
			if yields > 0 != c.yields {
				t.Errorf("it yields %d times, want that it does: %v", yields, c.yields)
			}
		})
	}
}

// A caller that polls yields until it has lost its processor twice. Then it sleeps.
func TestCallerYieldsUntilSomebodyComputes(t *testing.T) {
	var a *answering
	a = newAnswering(t, Config{Spin: time.Hour, Wake: time.Hour, yield: func() {
		a.yield()
		time.Sleep(2 * lostAfter)
	}}, 1<<30)
	if sleeps, yields := a.ask(1); sleeps != 1 || yields != 2 {
		t.Errorf("a caller that loses its processor whenever it yields does so %d times, and sleeps %d times; want 2 and 1", yields, sleeps)
	}
}

// Beside somebody who computes, a driver that waits for the background goroutine to leave the bed neither
// yields nor keeps the processor.
func TestDriverGivesWay(t *testing.T) {
	d := newStage(t)
	stays := make(chan struct{})
	d.sleeping = func() { <-stays }
	leave := sync.OnceFunc(func() { close(stays) })
	var roused, looks, from, to atomic.Int64
	d.receiving = func() { looks.Add(1) }
	d.waking = func() {
		switch roused.Add(1) {
		case 2: // after the first one the driver may poll
			from.Store(looks.Load())
		case 10:
			to.Store(looks.Load())
		}
	}
	var yields atomic.Int64
	p := newStaged(t, d, Config{Wake: time.Hour, yield: func() { yields.Add(1) }})
	t.Cleanup(leave)
	testenv.Await(t, "the background goroutine in bed", func() bool { return p.is("the background goroutine is in bed") })
	p.crowd = crowd{until: math.MaxInt64}
	begin := p.Now()
	var met flag
	waiter := testenv.Start(func() error { return p.Wait(t.Context(), &met) })
	testenv.Await(t, "a driver that rouses it again", func() bool { return roused.Load() >= 10 })
	n := roused.Load()
	if most := (p.Now()-begin)/int64(crowdSpin) + 2; n > most {
		t.Errorf("it is roused %d times, and %d times at most by a driver that sleeps between", n, most)
	}
	if n := to.Load() - from.Load(); n > 8*pollsALook {
		t.Errorf("it looks at the device %d times, and sleeps 8 times: want %d", n, 8*pollsALook)
	}
	leave()
	testenv.Await(t, "the driver in bed", func() bool { return p.is("a caller is in bed") })
	p.Lock()
	met.Store(true)
	p.Unlock()
	if err := testenv.Ends(t, "the driver", waiter); err != nil {
		t.Error(err)
	}
	if yields.Load() > 0 {
		t.Errorf("it yields %d times", yields.Load())
	}
}

// othersCame is a condition that is watched: that the frames for others have come.
type othersCame struct{ *answering }

func (o othersCame) Met() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.others == 0
}

func (othersCame) Changed() bool { return false }
func (othersCame) Arm()          {}
func (othersCame) Disarm()       {}

// A caller that waits for a notification keeps its processor for the first microseconds, and not anew
// with each frame for others.
func TestOtherFramesDoNotKeepTheProcessor(t *testing.T) {
	a := newAnswering(t, Config{Spin: time.Hour, Wake: time.Hour}, 0)
	a.mu.Lock()
	a.others = 1000
	a.mu.Unlock()
	if err := a.poller.Wait(t.Context(), othersCame{a}); err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sleeps > 0 || a.yields < 500 {
		t.Errorf("among 1000 frames for others it sleeps %d times and yields %d times, want 0 and most times", a.sleeps, a.yields)
	}
}

func TestDriverPollsFor(t *testing.T) {
	const now, last = 10_000_000, 9_000_000
	for _, c := range []struct {
		what         string
		crowd        int64 // until when others compute
		wakes        int64 // µs
		tight, until int64 // after a frame
		tight2       int64 // after it has found somebody else asleep on the device
		until2       int64
	}{
		{"alone", 0, 30, last + 5000, now + 50_000, last + 5000, now + 30_000},
		{"beside who computes", now + 1, 30, now + 20_000, now + 20_000, now + 20_000, now + 20_000},
		{"beside who computes, where it may hardly poll", now + 1, 5, now + 20_000, now + 20_000, now + 5000, now + 5000},
		{"beside who has computed", now, 30, last + 5000, now + 50_000, last + 5000, now + 30_000},
	} {
		p := &Poller{wakes: time.Duration(c.wakes * microsecond), crowd: crowd{until: c.crowd}}
		p.patience = newPatience(50*time.Microsecond, 200*time.Microsecond, 800*time.Microsecond, 10*time.Microsecond)
		d := driver{poller: p}
		if d.quietFrom(now, last); d.tight != c.tight || d.until != c.until {
			t.Errorf("%s: after a frame it keeps the processor until %d and polls until %d, want %d and %d", c.what, d.tight, d.until, c.tight, c.until)
		}
		if d.pollOn(now); d.tight != c.tight2 || d.until != c.until2 {
			t.Errorf("%s: while it wakes another one it keeps the processor until %d and polls until %d, want %d and %d", c.what, d.tight, d.until, c.tight2, c.until2)
		}
		if d.noticed(now, last); (p.patience.near > 0) != (c.crowd <= now) {
			t.Errorf("%s: it counts %d frames towards trials", c.what, p.patience.near)
		}
	}
}
