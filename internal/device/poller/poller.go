// Package poller drives the protocol engine over a device. It gives strong
// progress: a caller that waits drives progress itself, without a hand-over
// between threads, and a background goroutine serves peers when no caller does.
package poller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xdprma/xdprma/internal/device"
	"github.com/xdprma/xdprma/internal/device/seat"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/stats"
)

// Condition is something that a caller waits for. Met is called with the
// engine's lock held, and must be cheap.
type Condition interface{ Met() bool }

// A Watched condition can become met without a frame: others change memory that it looks at.
// A caller that spins looks there, too. One that sleeps arms the condition before, so that a frame comes then.
type Watched interface {
	Condition
	Changed() bool // whether Met should be asked; called without the engine's lock
	Arm()          // with the engine's lock held, as Disarm is
	Disarm()
}

// arm arms cond, if it is to be.
func arm(cond Condition) {
	if w, ok := cond.(Watched); ok {
		w.Arm()
	}
}

func disarm(cond Condition) {
	if w, ok := cond.(Watched); ok {
		w.Disarm()
	}
}

// Config bounds how a Poller waits. Zero values mean the defaults.
type Config struct {
	Spin      time.Duration // longest polling after a frame, before sleep; 0: 200 µs, or five times Wake if that is more, and in trials four times as long
	Wake      time.Duration // how long it takes to wake a thread; 0: it is measured
	MaxSleep  time.Duration // longest sleep in the kernel at first, and so the longest delay of what nobody waits for; 0: 5 ms
	LongSleep time.Duration // longest sleep of who has slept so long, and nothing came; 0: 500 ms

	yield func() // lets another thread have the processor of a caller that polls; nil: the kernel's; tests replace it
}

const (
	batchFrames = 64                     // what an acknowledgement can name
	tightSpin   = 5 * time.Microsecond   // after it, a spinning caller lets others have the core
	claimFor    = 200 * time.Microsecond // after which the background goroutine has left the seat, unless it lacks the core
	leastSpin   = 50 * time.Microsecond  // of a caller, which costs little where others want the core
	minNap      = 50 * time.Microsecond
	longWait    = 100 * time.Millisecond // of a caller that sleeps for long
	longNap     = time.Second            // while a caller sleeps on the device
	callGap     = 30 * time.Microsecond  // callers whose calls follow that closely make progress themselves
	callsATurn  = 16                     // by taking a turn this often
	pollsALook  = 16                     // a driver looks at the clock this often
)

// Poller joins one device and one engine.
type Poller struct {
	cfg   Config
	wakes time.Duration // a peer that sleeps wakes up meanwhile, and answers; no longer than Spin
	dev   device.Device
	facts *device.Facts // of dev
	start time.Time

	mu         sync.Mutex // guards the engine and the fields below
	eng        *engine.Engine
	waiters    *waiter // parked callers
	free       *waiter
	slow       waiter // what the driver waits for, if it has waited for a while
	announcing bool
	oversleeps bool   // who sleeps on the device does so for too long, and is to be woken
	calls      uint32 // since a frame was last taken
	unreaped   int    // slots given to the device since they were last reaped
	reapEvery  int    // how many of them there may be
	reaped     [4 * batchFrames]int32
	ended      bool         // the device is closed
	final      stats.Device // of the device, from then on

	seat     atomic.Uint64 // a seat.State: who drives, sleeps, waits and uses the device
	deadline atomic.Int64
	asleep   atomic.Int64  // until when somebody sleeps on the device; 0: nobody does
	called   atomic.Int64  // when a caller last had the lock
	guests   atomic.Int64  // callers in Path or Stats
	nudged   chan struct{} // of capacity 1: ends the nap of the background goroutine
	done     chan struct{} // closed when that goroutine has ended
	gone     chan struct{} // closed when the device is closed, with the error closeErr
	closeErr error

	frames   [batchFrames]device.Frame // of whoever has the seat
	patience patience                  // the same; its bounds are constant
	crowd    crowd                     // the same
}

// New starts the background goroutine. It owns dev from now on; the engine
// is reached through Lock alone.
func New(dev device.Device, eng *engine.Engine, cfg Config) *Poller {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	if cfg.Wake == 0 {
		cfg.Wake = device.WakeTime()
	}
	longest := cfg.Spin
	def(&cfg.Spin, max(200*time.Microsecond, 5*cfg.Wake))
	def(&longest, 4*cfg.Spin)
	def(&cfg.MaxSleep, 5*time.Millisecond)
	def(&cfg.LongSleep, 500*time.Millisecond)
	if cfg.yield == nil {
		cfg.yield = yield
	}
	p := &Poller{cfg: cfg, dev: dev, facts: dev.Facts(), eng: eng, start: time.Now(), done: make(chan struct{}), gone: make(chan struct{}), nudged: make(chan struct{}, 1)}
	p.wakes = min(2*cfg.Wake, cfg.Spin)
	p.patience = newPatience(max(p.wakes, min(leastSpin, cfg.Spin)), cfg.Spin, longest, cfg.Wake)
	p.reapEvery = max(1, min(32, p.facts.Slab.Slots/8))
	p.deadline.Store(engine.Never)
	go p.background()
	context.AfterFunc(p.facts.Alive, p.lose)
	return p
}

// lose ends all sessions, because the device is lost.
func (p *Poller) lose() {
	if p.tell(seat.Enters) == seat.Refuse {
		return
	}
	e := p.Lock()
	e.Isolate(context.Cause(p.facts.Alive))
	p.Unlock()
	p.tell(seat.Exits)
}

// Now returns the time on the engine's clock, in nanoseconds.
func (p *Poller) Now() int64 { return int64(time.Since(p.start)) + 1 }

// Facts returns those of the device. All other uses of the device go through the Poller.
func (p *Poller) Facts() *device.Facts { return p.facts }

// Lock gives the caller the engine, and the engine the time, until Unlock, UnlockQuiet or
// WaitLocked. It blocks while another holds it, never for a system call.
func (p *Poller) Lock() *engine.Engine {
	p.mu.Lock()
	p.eng.Now = p.Now()
	p.called.Store(p.eng.Now)
	return p.eng
}

// UnlockQuiet ends a use of the engine that had it send nothing.
func (p *Poller) UnlockQuiet() {
	turn := p.countCall() && p.tell(seat.Enters) == seat.Go
	p.mu.Unlock()
	if turn {
		p.turn()
	}
}

// Unlock hands the frames that have become ready to the device, and to the
// kernel once the engine is free again.
func (p *Poller) Unlock() {
	if p.Closed() {
		p.mu.Unlock()
		return
	}
	sent := p.drain()
	rouse := p.rouses(false)
	turn := p.countCall()
	enters := (sent || turn || rouse) && p.tell(seat.Enters) == seat.Go
	p.mu.Unlock()
	if !enters {
		return
	}
	defer guardSeat()
	p.handOn(sent, rouse)
	if turn {
		p.turn()
	} else {
		p.tell(seat.Exits)
	}
}

// handOn makes the system calls that follow from a use of the engine, which is free
// again. The caller is inside.
func (p *Poller) handOn(sent, rouse bool) {
	if sent {
		p.dev.Transmit()
	}
	if rouse {
		p.dev.Wake()
	}
}

// countCall reports whether the caller is to take a turn at the device: callers
// of any kind that call without pause keep the background goroutine away.
func (p *Poller) countCall() bool {
	p.calls++
	return p.calls%callsATurn == 0
}

// turn serves peers once, unless somebody else does. The caller, which is inside, exits.
func (p *Poller) turn() {
	defer guardSeat()
	if p.tell(seat.Turns) != seat.Drive {
		return
	}
	if n := p.dev.Receive(p.frames[:]); n > 0 || p.called.Load() >= p.deadline.Load() {
		p.take(n, nil)
	}
	p.tell(seat.Leaves)
}

// Closed reports whether Close was called.
func (p *Poller) Closed() bool { return p.state().Closed() }

// drain moves the engine's output to the device. The device hears of a session
// before the peer can; meanwhile the output of all callers waits. It reports
// whether there is anything to transmit.
func (p *Poller) drain() (sent bool) {
	if p.announcing {
		p.publishDeadline()
		return false
	}
	// Others may begin sessions while the engine is unlocked: one round a rank at most.
	for {
		opened, quiescing, closed := p.eng.Announcements()
		if len(opened)+len(quiescing)+len(closed) == 0 {
			break
		}
		if p.tell(seat.Enters) == seat.Refuse { // the device is about to be closed
			return false
		}
		p.announcing = true
		p.mu.Unlock()
		refused, why := p.announce(opened, quiescing, closed)
		p.mu.Lock()
		for _, id := range refused {
			p.eng.Refuse(id, why)
		}
		p.tell(seat.Exits)
		p.announcing = false
	}
	if p.unreaped >= p.reapEvery || p.eng.NeedsReap() {
		p.reap()
	}
	p.publishDeadline() // after Reaped, which lets parked bundles go on
	out := p.eng.Output()
	if len(out) > 0 {
		n := p.dev.Enqueue(out)
		p.eng.Took(n)
		p.unreaped += n
		if n < len(out) { // perhaps for want of what the device is done with
			p.reap()
			n = p.dev.Enqueue(p.eng.Output())
			p.eng.Took(n)
			p.unreaped += n
		}
	}
	return len(out) > 0
}

// announce tells the device of sessions, and returns those that it refuses, and why. The caller is inside.
func (p *Poller) announce(opened []engine.Opened, quiescing, closed []uint64) (refused []uint64, why error) {
	defer guardSeat()
	for _, s := range opened {
		if err := p.openSession(s); err != nil {
			refused, why = append(refused, s.ID), err
		}
	}
	if len(quiescing) > 0 {
		p.facts.Tier.Quiesce(func() { p.quiesced(quiescing) })
	}
	if f := p.facts.Filter; f != nil {
		for _, id := range closed {
			f.ForgetSession(id)
		}
	}
	return refused, why
}

// openSession tells the device of a session, unless the device is lost.
func (p *Poller) openSession(s engine.Opened) error {
	if why := context.Cause(p.facts.Alive); why != nil {
		return why
	}
	f := p.facts.Filter
	if f == nil {
		return nil
	}
	if err := f.AllowSession(s.ID, int(s.Slot)); err != nil {
		return fmt.Errorf("the device takes no more sessions: %w", err)
	}
	return nil
}

// quiesced tells the engine that nothing which dead sessions have sent can take effect any
// more.
func (p *Poller) quiesced(ids []uint64) {
	if p.tell(seat.Enters) == seat.Refuse {
		return
	}
	e := p.Lock()
	for _, id := range ids {
		e.Quiesced(id)
	}
	p.Unlock()
	p.tell(seat.Exits)
}

// Tick is the engine's, for a caller that has the lock. It takes back what the device is done with
// before a deadline that has passed is looked at: the engine does not send again what the device has.
func (p *Poller) Tick() {
	if p.unreaped > 0 && p.eng.Now >= p.deadline.Load() && !p.Closed() { // the caller need not be inside
		p.reap()
	}
	p.eng.Tick()
}

// reap takes back the slots that the device is done with. It is off the way of
// most operations: it happens when some have gathered, when the engine waits for
// one, and when a deadline has passed.
func (p *Poller) reap() {
	p.unreaped = 0
	for n := p.dev.Reap(p.reaped[:]); n > 0; n = p.dev.Reap(p.reaped[:]) {
		p.eng.Reaped(p.reaped[:n])
	}
}

// publishDeadline tells those without the engine's lock when it is due. A sleeper has looked at
// it before, or finds it changed: see sleep.
func (p *Poller) publishDeadline() {
	if d := p.eng.Deadline(); d != p.deadline.Load() { // a store costs several loads
		p.deadline.Store(d)
		p.oversleeps = p.asleep.Load()-d > int64(p.cfg.MaxSleep)
	}
}

// rouses wakes the parked callers whose condition holds, and reports whether the one who sleeps on the
// device is to be woken, once the engine is free again. A caller that goes on to drive keeps the
// deadline itself.
func (p *Poller) rouses(drives bool) (rouse bool) {
	if !drives {
		rouse, p.oversleeps = p.oversleeps, false
	}
	if p.waiters != nil && p.wakeMet() {
		rouse = true
	}
	return rouse
}

// ErrNoContext is what ends a call that waits and was given no context.
var ErrNoContext = &mpierr.Error{Op: "wait", Class: mpierr.Arg, Rank: mpierr.NoRank, Err: errors.New("the context is nil: pass context.Background() for none")}

var errClosed = &mpierr.Error{Op: "wait", Class: mpierr.Closed, Rank: mpierr.NoRank, Err: net.ErrClosed}

// Close ends the background goroutine, unblocks all waiters with net.ErrClosed and
// closes the device. It is idempotent, and calls at the same time wait for each other.
func (p *Poller) Close() error {
	if p.tell(seat.Closes) == seat.Done {
		<-p.gone
		return p.closeErr
	}
	for p.state().Inside() > 0 {
		p.mu.Lock()
		for w := p.waiters; w != nil; w = w.next {
			w.signal()
		}
		p.mu.Unlock()
		p.dev.Wake()
		time.Sleep(50 * time.Microsecond)
	}
	p.dev.Wake()
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.guests.Load() > 0 {
		p.mu.Unlock()
		time.Sleep(50 * time.Microsecond)
		p.mu.Lock()
	}
	p.dev.Stats(&p.final)
	p.ended = true
	p.closeErr = p.dev.Close()
	p.facts.Slab.Detach() // callers that came too late may still use the engine
	p.eng.ForgetKeys()
	close(p.gone)
	return p.closeErr
}
