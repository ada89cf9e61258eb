package poller

import (
	"context"
	"time"

	"github.com/xdprma/xdprma/internal/device/seat"
	"github.com/xdprma/xdprma/internal/protocol/engine"
)

// take gives the first n received frames to the engine and sends what follows
// from them, and reports whether cond, if not nil, is met, and the time. The caller has the seat.
func (p *Poller) take(n int, cond Condition) (met bool, now int64) {
	p.mu.Lock()
	now = p.Now()
	p.eng.Now = now
	if n > 0 {
		p.calls = 0
	}
	for i := range p.frames[:n] {
		if f := &p.frames[i]; f.Answer {
			p.eng.ReceiveHanded(f.Payload)
		} else {
			p.eng.Receive(f.Payload, f.Path)
		}
	}
	p.Tick()
	sent := p.drain()
	met = cond != nil && cond.Met()
	rouse := p.rouses(cond != nil && !met) // the background goroutine: a caller that sleeps on the device has the seat
	p.mu.Unlock()
	p.handOn(sent, rouse)
	if n > 0 {
		p.dev.Release()
	}
	return met, now
}

// Wait blocks until cond is met, ctx is done or the poller is closed. It sends
// what is ready before it waits.
func (p *Poller) Wait(ctx context.Context, cond Condition) error {
	p.Lock()
	return p.WaitLocked(ctx, cond)
}

// WaitLocked is Wait for a caller that has the lock, which it gives up.
func (p *Poller) WaitLocked(ctx context.Context, cond Condition) error {
	if ctx == nil {
		p.mu.Unlock()
		return ErrNoContext
	}
	if p.tell(seat.Enters) == seat.Refuse { // before tick, which asks the device
		p.mu.Unlock()
		return errClosed
	}
	defer guardSeat()
	p.Tick()
	met := cond.Met()
	sent := p.drain()
	rouse := p.rouses(!met) // or it parks: see there
	turn := p.countCall()
	p.mu.Unlock()
	if sent { // without a call between: a processor mispredicts returns after a system call
		p.dev.Transmit()
	}
	if rouse {
		p.dev.Wake()
	}
	switch {
	case !met:
		return p.obey(ctx, cond)
	case turn:
		p.turn()
	default:
		p.tell(seat.Exits)
	}
	return nil
}

// obey does what the seat's machine orders a caller that waits, until that is done.
func (p *Poller) obey(ctx context.Context, cond Condition) error {
	if err := ctx.Err(); err != nil {
		p.tell(seat.Exits)
		return err
	}
	met, since := false, p.called.Load()
	for order := p.tell(seat.Waits); order != seat.Done; {
		switch order {
		case seat.Drive:
			met = p.drive(ctx, cond, since)
			order = p.tell(seat.Leaves)
		case seat.Claim:
			p.claim()
			order = p.tell(seat.Claimed)
		case seat.Park:
			met, order = p.park(ctx, cond, since)
		}
	}
	switch {
	case met:
		return nil
	case p.Closed():
		return errClosed
	}
	return ctx.Err()
}

// claim waits for the background goroutine to leave the seat, which it does as soon
// as it sees that a caller wants to drive.
func (p *Poller) claim() {
	for begin := p.Now(); p.state().BackgroundDrives() && p.Now()-begin < int64(max(claimFor, p.wakes)); {
	}
}

// drive polls until cond is met (true), or ctx is done or the poller is closed.
func (p *Poller) drive(ctx context.Context, cond Condition, since int64) (met bool) {
	d := driver{poller: p, ctx: ctx, cond: cond, since: since, calm: p.cfg.MaxSleep}
	d.watched, _ = cond.(Watched)
	met = d.poll()
	if d.slow {
		p.setSlow(nil, 0)
	}
	if d.stop != nil {
		d.stop()
	}
	if !met {
		p.leaveDeadline()
	}
	return met
}

// driver is a caller in the seat.
type driver struct {
	poller  *Poller
	ctx     context.Context
	cond    Condition
	watched Watched       // cond, if it is; else nil
	since   int64         // when its call began to wait
	slow    bool          // it has waited for a while, and can be found by EachWait
	calm    time.Duration // how long it sleeps at most
	stop    func() bool   // unless it is nil: the end of ctx wakes it
	slept   bool          // since the last frame
	roused  bool          // it has woken who sleeps on the device, and not slept there since
	tight   int64         // until then it keeps the processor
	until   int64         // until then it polls
}

// quietFrom has the driver poll for as long as is worth it from now on. last is when the last frame
// came that says something of how long the next one takes.
func (d *driver) quietFrom(now, last int64) {
	p := d.poller
	if p.crowd.here(now) {
		d.until = now + p.patience.spinBeside()
		d.tight = d.until
		return
	}
	d.tight, d.until = last+int64(tightSpin), now+p.patience.spin()
}

// noticed tells the patience that a frame came, the first one since last.
func (d *driver) noticed(now, last int64) {
	p := d.poller
	p.patience.note(now-last, d.slept, p.crowd.here(now))
}

// pollOn has it poll for a while more, without a frame: the background goroutine gets out of its way.
func (d *driver) pollOn(now int64) {
	d.until = now + int64(d.poller.wakes)
	if d.poller.crowd.here(now) {
		d.until = min(d.until, now+int64(crowdSpin))
		d.tight = d.until
	}
}

// giveWay waits for the background goroutine, which is woken, to get out of the way. Where others
// compute, that may need this processor. So if it takes longer, the driver sleeps, away from the device.
func (d *driver) giveWay() {
	now := d.poller.Now()
	if d.roused && d.poller.crowd.here(now) {
		time.Sleep(crowdSpin)
		return
	}
	d.roused = true
	d.pollOn(now)
}

// yield lets another thread that is ready have this processor. If that computes with it, the
// driver polls no longer.
func (d *driver) yield() {
	p := d.poller
	from := p.Now()
	p.cfg.yield()
	if p.crowd.note(from, p.Now()) {
		d.until = from
	}
}

// poll is drive.
func (d *driver) poll() bool {
	p, ctx, cond := d.poller, d.ctx, d.cond
	last := p.called.Load() // when a frame came, or the wait began
	d.quietFrom(last, last)
	for polls := 1; ; polls++ {
		look := polls%pollsALook == 0
		if look && (p.Closed() || ctx.Err() != nil) { // however many frames there are
			return false
		}
		if n := p.dev.Receive(p.frames[:]); n > 0 {
			met, now := p.take(n, cond)
			if d.watched == nil || met { // other frames say nothing of how long a notification takes
				d.noticed(now, last)
				last = now
			}
			d.slept = false
			if met {
				return true
			}
			d.quietFrom(now, last)
			d.noteSlow(now)
			continue
		}
		if d.watched != nil && d.watched.Changed() {
			p.mu.Lock()
			met := cond.Met()
			p.mu.Unlock()
			now := p.Now()
			d.noticed(now, last)
			if d.slept = false; met {
				return true
			}
			last = now
			d.quietFrom(now, now)
		}
		if !look {
			continue
		}
		now := p.Now()
		if now >= p.deadline.Load() {
			if met, _ := p.take(0, cond); met {
				return true
			}
		} else {
			p.dev.Transmit() // what the kernel has not taken before
		}
		switch {
		case now < d.tight:
		case now < d.until:
			d.yield()
		default:
			d.noteSlow(now)
			met, slept := p.rest(cond, d.calm)
			if met {
				return true
			}
			if slept {
				d.slept, d.roused = true, false
				d.calm = d.longer()
				polls = pollsALook - 1 // one look at the device tells whether anything has come
			} else {
				d.giveWay()
			}
		}
	}
}

// noteSlow has EachWait find the driver once it has waited for a while.
func (d *driver) noteSlow(now int64) {
	if !d.slow && now-d.since > int64(slowDriver) {
		d.slow = true
		d.poller.setSlow(d.cond, d.since)
	}
}

// longer returns how long the driver may sleep the next time: for long, once the end of its
// context wakes it. At first it learns of that by looking, which costs shorter waits no memory.
func (d *driver) longer() time.Duration {
	if d.poller.Now()-d.since < int64(longWait) {
		return d.calm
	}
	if d.stop == nil && d.ctx.Done() != nil {
		d.stop = context.AfterFunc(d.ctx, d.poller.wake)
	}
	return max(d.calm, d.poller.cfg.LongSleep)
}

// wake wakes who sleeps on the device.
func (p *Poller) wake() {
	if p.tell(seat.Enters) == seat.Go {
		p.dev.Wake()
		p.tell(seat.Exits)
	}
}

// rest sleeps on the device until something arrives or is due, and reports whether cond
// is met, and whether it has slept. Others may meet it without a frame, so it is registered. If the background
// goroutine sleeps there, it is woken, so that it goes to nap elsewhere: the caller looks
// at the device once more before it tries again.
func (p *Poller) rest(cond Condition, d time.Duration) (met, slept bool) {
	tires := seat.Tires
	if d > p.cfg.MaxSleep {
		tires = seat.Retires
	}
	if p.tell(tires) == seat.Rouse {
		p.dev.Wake()
		p.mu.Lock()
		defer p.mu.Unlock()
		return cond.Met(), false
	}
	p.mu.Lock()
	arm(cond)
	if met = cond.Met(); !met {
		w := p.register(cond, true)
		p.mu.Unlock()
		p.sleep(d)
		p.mu.Lock()
		p.recycle(w)
		met = cond.Met()
	}
	disarm(cond)
	p.mu.Unlock()
	p.tell(seat.Rises)
	return met, true
}

// leaveDeadline leaves the deadline that a caller has brought forward to whoever sleeps on the
// device.
func (p *Poller) leaveDeadline() {
	p.mu.Lock()
	late := p.oversleeps
	p.oversleeps = false
	p.mu.Unlock()
	if late {
		p.dev.Wake()
	}
}

// sleep sleeps on the device for d at most, for somebody who has the bed. It says until when
// before it looks at the deadline: who brings that forward wakes it.
func (p *Poller) sleep(d time.Duration) {
	now := p.Now()
	p.asleep.Store(now + int64(d))
	defer p.asleep.Store(0)
	if until := p.deadline.Load(); until != engine.Never && until-now < int64(d) {
		d = min(d, time.Duration(p.nextDeadline()-now))
		p.asleep.Store(now + int64(d))
	}
	if d > 0 {
		p.dev.Sleep(d)
	}
}

// nextDeadline returns the deadline, which it finds anew if it is to come.
func (p *Poller) nextDeadline() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.eng.Now = p.Now()
	p.eng.LookAhead()
	p.publishDeadline()
	return p.deadline.Load()
}

// park blocks without driving until cond is met, or the caller should look again: the
// driver has left, ctx is done, or the poller is closed. It returns what is next.
func (p *Poller) park(ctx context.Context, cond Condition, since int64) (met bool, next seat.Order) {
	p.mu.Lock()
	arm(cond)
	if cond.Met() {
		disarm(cond)
		p.mu.Unlock()
		p.tell(seat.Exits)
		return true, seat.Done
	}
	w := p.register(cond, false)
	w.since = since
	p.mu.Unlock()
	p.leaveDeadline()
	if p.tell(seat.Parks) == seat.Block {
		select {
		case <-w.wake:
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	p.recycle(w)
	disarm(cond)
	met = cond.Met()
	p.mu.Unlock()
	if met || ctx.Err() != nil {
		return met, p.tell(seat.Goes)
	}
	return false, p.tell(seat.Unparks)
}
