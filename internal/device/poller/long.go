package poller

import "time"

// slowDriver is how long a driver waits before it can be found by EachWait.
const slowDriver = time.Second

// setSlow notes what the driver has waited for since a time, or that it drives no more.
func (p *Poller) setSlow(cond Condition, since int64) {
	p.mu.Lock()
	p.slow.cond, p.slow.since = cond, since
	p.mu.Unlock()
}

// EachWait calls f with each condition that a caller waits for, and for how long it has, if that
// is more than a second. f is called with the engine's lock held.
func (p *Poller) EachWait(f func(cond Condition, waited time.Duration)) {
	p.Lock()
	defer p.UnlockQuiet()
	now := p.Now()
	if p.slow.cond != nil {
		f(p.slow.cond, time.Duration(now-p.slow.since))
	}
	for w := p.waiters; w != nil; w = w.next {
		if !w.asleep && now-w.since > int64(slowDriver) {
			f(w.cond, time.Duration(now-w.since))
		}
	}
}
