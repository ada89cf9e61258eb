package poller

import (
	"context"
	"net/netip"

	"github.com/xdprma/xdprma/internal/device"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/stats"
)

// enterDevice keeps the device open until guests is counted down again, for a
// caller that uses it apart from the data path; false if it is closed.
func (p *Poller) enterDevice() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	p.guests.Add(1)
	return true
}

// Path resolves addr, as Device.Path does, at most until ctx ends. Close waits for
// it. After Close the error is net.ErrClosed, and after the loss of the device the
// reason of that.
func (p *Poller) Path(ctx context.Context, addr netip.AddrPort) (device.PathID, error) {
	if !p.enterDevice() {
		return device.NoPath, errClosed
	}
	defer p.guests.Add(-1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.facts.Alive, cancel)()
	id, err := p.dev.Path(ctx, addr)
	if why := context.Cause(p.facts.Alive); why != nil {
		return device.NoPath, mpierr.New("resolve "+addr.String(), mpierr.Unsupported, mpierr.NoRank, "%w", why)
	}
	return id, err
}

// Stats returns the device's counters; after Close, as they were then.
func (p *Poller) Stats() (s stats.Device) {
	if !p.enterDevice() {
		return p.final
	}
	defer p.guests.Add(-1)
	p.dev.Stats(&s)
	return s
}
