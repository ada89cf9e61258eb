package comm

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// LeadHalf is CreateGroup at the first of g, which lets only some go.
func (c *Comm) LeadHalf(ctx context.Context, g Group, some int) error {
	id := c.job.contextID()
	k, p := c.members.CreateGroup(g.world, 0, id), c.job.poller
	if k.Step(p.Lock()) != collective.Wait {
		panic("the others have the id before they were told")
	}
	if err := p.WaitLocked(ctx, k); err != nil {
		return err
	}
	e := p.Lock()
	defer p.Unlock()
	for _, w := range g.world[1 : 1+some] {
		e.PostSend(&engine.Sending{To: e.Session(w).Peer(), Context: id, Tag: MaxTag + 1})
	}
	e.Tick()
	return nil
}

// SayLost tells a rank that this one has lost another, whatever the truth.
func (c *Comm) SayLost(to, lost int) {
	e := c.job.poller.Lock()
	defer c.job.poller.Unlock()
	s := e.Session(to)
	i := s.Room(link.Request, 0)
	r := wire.Gone{By: uint32(c.job.rank), Rank: uint32(lost)}.Record()
	e.Append(i, &r, 0)
	s.MarkDirty()
	e.Tick()
}

// Lose ends this rank's session with another, as silence does.
func (c *Comm) Lose(rank int) {
	e := c.job.poller.Lock()
	defer c.job.poller.Unlock()
	e.Session(rank).GiveUp(errors.New("it is taken for silent"))
	e.Tick()
}

// SetLongWait has ranks wait in silence for another time, until restore is called.
func SetLongWait(d time.Duration) (restore func()) {
	was := longWait
	longWait = d
	return func() { longWait = was }
}

// SplitInSteps is Split, all of one colour, which calls between when this rank has its
// communicator, and the others are still to be told so.
func (c *Comm) SplitInSteps(ctx context.Context, between func()) (*Comm, error) {
	return c.split(ctx, "comm split", 0, 0, func(*Comm) error { between(); return nil })
}

// PlaceOf returns what a rank at an address publishes.
func PlaceOf(at netip.AddrPort) []byte { return placeOf(at) }

// ParsePlace reads, as rank self, what another rank has published.
func ParsePlace(rank, self int, place string) (netip.AddrPort, error) {
	p, err := parsePeer(rank, self, 0, []byte(place))
	return p.addr, err
}
