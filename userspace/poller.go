// Package userspace drives the protocol engine over a device. Its Poller gives
// strong progress: a caller that waits drives progress itself, without a
// hand-over between threads, and a background thread serves peers when no
// caller does. Two devices exist: AF_XDP sockets behind the classifier, and a
// UDP socket; both speak the same frames.
package userspace

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xdprma/xdprma/internal/engine"
	"github.com/xdprma/xdprma/internal/mpierr"
)

// Condition is something that a caller waits for. Met is called with the
// engine's lock held, and must be cheap.
type Condition interface{ Met() bool }

// PollerConfig bounds how a Poller waits. Zero values mean the defaults.
type PollerConfig struct {
	CallerSpin     time.Duration // a waiting caller polls this long after the last frame; 0: 100 µs
	BackgroundSpin time.Duration // the background thread does; 0: 20 µs
	MaxSleep       time.Duration // longest sleep in the kernel, and so the longest delay of what nobody waits for; 0: 5 ms
}

const (
	batchFrames = 64
	tightSpin   = 5 * time.Microsecond // after it, a spinning caller lets others have the core
	minNap      = 50 * time.Microsecond
	maxNap      = time.Millisecond
	longNap     = 5 * time.Millisecond // while a caller sleeps on the device
)

// Who drives: moves frames from the device to the engine.
const (
	seatFree int32 = iota
	seatBackground
	seatCaller
)

// Poller joins one device and one engine.
type Poller struct {
	cfg   PollerConfig
	dev   Device
	start time.Time

	mu         sync.Mutex // guards the engine and the fields below
	eng        *engine.Engine
	waiters    *waiter // parked callers
	free       *waiter
	announcing bool
	reaped     [4 * batchFrames]int32

	seat     atomic.Int32
	wanted   atomic.Int32 // callers that wait for the background thread to leave the seat
	napping  atomic.Bool  // the background thread, until a caller that slept leaves the seat
	nudged   int          // eventfd that ends the nap
	deadline atomic.Int64
	closed   atomic.Bool
	inBed    atomic.Bool  // somebody sleeps on the device
	inside   atomic.Int64 // callers in Wait
	done     chan struct{}

	frames      [batchFrames]Frame // of whoever has the seat
	callerSlept atomic.Bool        // the caller in the seat sleeps, or has slept
}

// waiter is a caller that is parked, or that sleeps on the device.
type waiter struct {
	cond   Condition
	wake   chan struct{} // capacity 1
	asleep bool          // sleeps on the device: Wake reaches it
	next   *waiter
}

// NewPoller starts the background thread. It owns dev from now on; the engine
// is reached through Lock alone.
func NewPoller(dev Device, eng *engine.Engine, cfg PollerConfig) *Poller {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&cfg.CallerSpin, 100*time.Microsecond)
	def(&cfg.BackgroundSpin, 20*time.Microsecond)
	def(&cfg.MaxSleep, 5*time.Millisecond)
	p := &Poller{cfg: cfg, dev: dev, eng: eng, start: time.Now(), done: make(chan struct{}), nudged: newNudge()}
	p.deadline.Store(engine.Never)
	go p.background()
	return p
}

// Now returns the time on the engine's clock, in nanoseconds.
func (p *Poller) Now() int64 { return int64(time.Since(p.start)) + 1 }

// Device returns the device, for what needs no lock.
func (p *Poller) Device() Device { return p.dev }

// Lock gives the caller the engine until Unlock. It blocks while another holds
// it, never for a system call.
func (p *Poller) Lock() (*engine.Engine, int64) {
	p.mu.Lock()
	return p.eng, p.Now()
}

// Unlock hands the frames that have become ready to the device, and to the
// kernel once the engine is free again.
func (p *Poller) Unlock() {
	if p.closed.Load() {
		p.mu.Unlock()
		return
	}
	p.drain()
	if p.waiters != nil {
		p.wakeMet()
	}
	p.inside.Add(1) // the device stays open until Transmit returns
	p.mu.Unlock()
	p.dev.Transmit()
	p.inside.Add(-1)
}

// Closed reports whether Close was called.
func (p *Poller) Closed() bool { return p.closed.Load() }

// drain moves the engine's output to the device. The device hears of a session
// before the peer can; meanwhile the output of all callers waits.
func (p *Poller) drain() {
	p.deadline.Store(p.eng.Deadline())
	if p.announcing {
		return
	}
	if opened, closed := p.eng.Announcements(); len(opened)+len(closed) > 0 {
		p.announcing = true
		p.mu.Unlock()
		for _, id := range opened {
			// A failure leaves the handshake unanswered, and so ends in an error that
			// the caller sees.
			_ = p.dev.SessionOpened(id)
		}
		for _, id := range closed {
			p.dev.SessionClosed(id)
		}
		p.mu.Lock()
		p.announcing = false
	}
	for n := p.dev.Reap(p.reaped[:]); n > 0; n = p.dev.Reap(p.reaped[:]) {
		p.eng.Reaped(p.reaped[:n])
	}
	if out := p.eng.Output(); len(out) > 0 {
		p.eng.Took(p.dev.Enqueue(out))
	}
}

// wakeMet wakes the parked callers whose condition holds.
func (p *Poller) wakeMet() {
	for at := &p.waiters; *at != nil; {
		w := *at
		if !w.cond.Met() {
			at = &w.next
			continue
		}
		*at = w.next
		p.signal(w)
	}
}

func (p *Poller) signal(w *waiter) {
	if w.asleep {
		p.dev.Wake()
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (p *Poller) unlink(w *waiter) {
	for at := &p.waiters; *at != nil; at = &(*at).next {
		if *at == w {
			*at = w.next
			return
		}
	}
}

// turn moves one batch from the device to the engine and back, and reports
// whether there was any and whether cond, if not nil, is met. The caller has the seat.
func (p *Poller) turn(cond Condition) (worked, met bool) {
	n := p.dev.Receive(p.frames[:])
	if n == 0 && p.Now() < p.deadline.Load() {
		p.dev.Transmit()
		return false, false
	}
	e, now := p.Lock()
	for i := range p.frames[:n] {
		e.Receive(now, p.frames[i].Payload, p.frames[i].Path)
	}
	e.Tick(now)
	p.drain()
	if p.waiters != nil {
		p.wakeMet()
	}
	met = cond != nil && cond.Met()
	p.mu.Unlock()
	if n > 0 {
		p.dev.Release()
	}
	p.dev.Transmit()
	return n > 0, met
}

// Wait blocks until cond is met, ctx is done or the poller is closed. It sends
// what is ready before it waits.
func (p *Poller) Wait(ctx context.Context, cond Condition) error {
	e, now := p.Lock()
	e.Tick(now)
	met := cond.Met()
	if p.closed.Load() {
		p.mu.Unlock()
		return errClosed
	}
	p.inside.Add(1)
	defer p.inside.Add(-1)
	p.Unlock()
	spin := time.Duration(0)
	for !met {
		if p.closed.Load() {
			return errClosed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		switch {
		case p.seat.CompareAndSwap(seatFree, seatCaller):
			met = p.drive(ctx, cond)
			p.seat.Store(seatFree)
			p.handOver()
			if p.callerSlept.Swap(false) {
				p.nudge()
			}
			if !met && !p.closed.Load() && ctx.Err() == nil {
				continue
			}
		case p.seat.Load() == seatBackground && spin < p.cfg.CallerSpin:
			// It gives way as soon as it sees that a caller wants to drive.
			p.wanted.Add(1)
			begin := p.Now()
			for p.seat.Load() == seatBackground && p.Now()-begin < int64(p.cfg.CallerSpin) {
				continue
			}
			spin += time.Duration(p.Now() - begin)
			p.wanted.Add(-1)
		default:
			met = p.park(ctx, cond)
		}
	}
	return nil
}

// drive polls until cond is met (true), or ctx is done or the poller is closed.
func (p *Poller) drive(ctx context.Context, cond Condition) bool {
	last := p.Now()
	for i := 1; ; i++ {
		worked, met := p.turn(cond)
		if met {
			return true
		}
		if worked {
			last = p.Now()
			continue
		}
		if i%16 != 0 {
			continue
		}
		if p.closed.Load() || ctx.Err() != nil {
			return false
		}
		if quiet := p.Now() - last; quiet < int64(p.cfg.CallerSpin) {
			if quiet > int64(tightSpin) {
				yield()
			}
			continue
		}
		p.callerSlept.Store(true)
		if p.sleepFor(cond) {
			return true
		}
		last = p.Now() - int64(p.cfg.CallerSpin) + int64(p.cfg.BackgroundSpin)
	}
}

// sleepFor sleeps in the kernel until something arrives or is due, and reports
// whether cond is met. Others may meet cond without a frame, so it is registered.
func (p *Poller) sleepFor(cond Condition) bool {
	p.mu.Lock()
	if cond.Met() {
		p.mu.Unlock()
		return true
	}
	w := p.newWaiter(cond)
	w.asleep = true
	p.mu.Unlock()
	p.sleep()
	p.mu.Lock()
	p.recycle(w)
	met := cond.Met()
	p.mu.Unlock()
	return met
}

// sleep sleeps on the device, where there is room for one. The background thread
// sleeps without the seat: a driver that finds it there wakes it, so that it goes
// to nap elsewhere, and looks at the device once more before it tries again.
func (p *Poller) sleep() {
	if !p.inBed.CompareAndSwap(false, true) {
		p.dev.Wake()
		return
	}
	defer p.inBed.Store(false)
	d := p.cfg.MaxSleep
	if until := p.deadline.Load(); until != engine.Never {
		d = min(d, time.Duration(until-p.Now()))
	}
	if d > 0 {
		p.dev.Sleep(d)
	}
}

func (p *Poller) newWaiter(cond Condition) *waiter {
	w := p.free
	if w == nil {
		w = &waiter{wake: make(chan struct{}, 1)}
	} else {
		p.free = w.next
	}
	w.cond, w.next, w.asleep = cond, p.waiters, false
	p.waiters = w
	return w
}

func (p *Poller) recycle(w *waiter) {
	p.unlink(w)
	select { // a signal that came too late
	case <-w.wake:
	default:
	}
	w.cond, w.next = nil, p.free
	p.free = w
}

// park blocks without driving until cond is met, or the caller should look
// again: the driver has left, ctx is done, or the poller is closed.
func (p *Poller) park(ctx context.Context, cond Condition) bool {
	p.mu.Lock()
	if cond.Met() {
		p.mu.Unlock()
		return true
	}
	w := p.newWaiter(cond)
	p.mu.Unlock()
	p.wanted.Add(1)
	defer p.wanted.Add(-1)
	// The driver may have left before it could see this waiter.
	if p.seat.Load() != seatFree && !p.closed.Load() {
		select {
		case <-w.wake:
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	p.recycle(w)
	met := cond.Met()
	p.mu.Unlock()
	return met
}

// handOver asks a parked caller to drive, now that the seat is free.
func (p *Poller) handOver() {
	p.mu.Lock()
	for w := p.waiters; w != nil; w = w.next {
		if !w.asleep {
			p.signal(w)
			break
		}
	}
	p.mu.Unlock()
}

var errClosed = &mpierr.Error{Op: "wait", Class: mpierr.Closed, Rank: mpierr.NoRank, Err: net.ErrClosed}

// Close ends the background thread, unblocks all waiters with net.ErrClosed and
// closes the device. It is idempotent.
func (p *Poller) Close() error {
	if p.closed.Swap(true) {
		<-p.done
		return nil
	}
	p.nudge()
	for p.inside.Load() > 0 {
		p.mu.Lock()
		for w := p.waiters; w != nil; w = w.next {
			p.signal(w)
		}
		p.mu.Unlock()
		p.dev.Wake()
		time.Sleep(50 * time.Microsecond)
	}
	p.dev.Wake()
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.inside.Load() > 0 { // in Transmit, from before it could see that the poller is closed
		time.Sleep(50 * time.Microsecond)
	}
	closeNudge(p.nudged)
	return p.dev.Close()
}
