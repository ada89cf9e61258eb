package comm

import (
	"context"
	"errors"

	"github.com/xdprma/xdprma/internal/launch/job"
	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// LeadHalf is CreateGroup at the first of g, which lets only some go.
func (c *Comm) LeadHalf(ctx context.Context, g Group, some int) error {
	id := c.job.Contexts.Next()
	k, p := c.members.CreateGroup(g.world, 0, id), c.job.Poller()
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
	e := c.job.Poller().Lock()
	defer c.job.Poller().Unlock()
	s := e.Session(to)
	i := s.Room(link.Request, 0)
	r := wire.Gone{By: uint32(c.job.Rank()), Rank: uint32(lost)}.Record()
	e.Append(i, &r, 0)
	s.MarkDirty()
	e.Tick()
}

// Lose ends this rank's session with another, as silence does.
func (c *Comm) Lose(rank int) {
	e := c.job.Poller().Lock()
	defer c.job.Poller().Unlock()
	e.Session(rank).GiveUp(errors.New("it is taken for silent"))
	e.Tick()
}

// SplitInSteps is Split, all of one colour, which calls between when this rank has its
// communicator, and the others are still to be told so.
func (c *Comm) SplitInSteps(ctx context.Context, between func()) (*Comm, error) {
	return c.split(ctx, "comm split", 0, 0, func(*Comm) error { between(); return nil })
}

// Job is a job with the communicator of its ranks.
type Job struct {
	*job.Job
	world *Comm
}

// World returns the communicator of all ranks.
func (j *Job) World() *Comm { return j.world }

// Join is job.Join.
func Join(ctx context.Context, c job.Config) (*Job, error) {
	j, err := job.Join(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Job{Job: j, world: newComm(j, collective.WorldContext, nil)}, nil
}
