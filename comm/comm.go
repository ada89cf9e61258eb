package comm

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/xdprma/xdprma/internal/attribute"
	"github.com/xdprma/xdprma/internal/engine"
	"github.com/xdprma/xdprma/internal/mpierr"
)

// worldContext is the message context of the world communicator.
const worldContext = 1

// Comm is a communicator: a group of ranks and a message context of their own.
// Its collectives are called by all ranks of the group in the same order, and by
// one goroutine of each rank at a time. Once a collective has failed at a member,
// be it because its context ended, the communicator is broken: that collective or
// the next one fails at every member, so that none waits for one that has given up.
type Comm struct {
	job     *Job
	context uint32
	group   []int // ranks in the job, nil for all of them
	rank    int
	size    int

	errhandler atomic.Pointer[Errhandler]
	name       atomic.Pointer[string]
	attributes attribute.Set
	greeted    sync.Once // the members have been called, for receives from any of them

	mu   sync.Mutex // one collective at a time
	turn uint32     // collectives done, so that messages of two cannot be mixed up
}

func newComm(j *Job, context uint32, group []int) *Comm {
	c := &Comm{job: j, context: context, group: group, rank: j.rank, size: j.size}
	if group != nil {
		c.size, c.rank = len(group), -1
		for i, r := range group {
			if r == j.rank {
				c.rank = i
			}
		}
	}
	return c
}

// windowContext marks the message contexts of windows; the rest is the window's id.
const windowContext = 1 << 31

// ForWindow returns a communicator of the same ranks for the messages of the window
// with the given id. They are apart from those of c, so that the window's
// collectives and those of the program do not disturb each other.
func (c *Comm) ForWindow(id uint32) *Comm { return newComm(c.job, windowContext|id, c.group) }

// Rank returns this process's rank in the communicator.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks in the communicator.
func (c *Comm) Size() int { return c.size }

// Job returns the job that the communicator belongs to.
func (c *Comm) Job() *Job { return c.job }

// WorldRank returns the rank in the job of a rank of the communicator.
func (c *Comm) WorldRank(rank int) int {
	if c.group == nil {
		return rank
	}
	return c.group[rank]
}

// tag of a round of the current collective, which no program can use.
func (c *Comm) tag(round int) int { return MaxTag + 1 + int(c.turn<<8)&MaxTag | round }

// session returns the session with a rank of the communicator, nil for this rank.
func (c *Comm) session(ctx context.Context, rank int) (*engine.Session, error) {
	world := c.WorldRank(rank)
	if world == c.job.rank {
		return nil, nil
	}
	return c.job.Session(ctx, world)
}

var errRevoked = errors.New("the communicator is broken: this member has failed, or given up a collective")

// usable returns nil unless the communicator is broken or the job closed.
func (c *Comm) usable() error {
	e, _ := c.job.poller.Lock()
	defer c.job.poller.Unlock()
	if c.job.poller.Closed() {
		return net.ErrClosed
	}
	return c.revoked(e)
}

func (c *Comm) revoked(e *engine.Engine) error {
	if failed, yes := e.Revoked(c.context); yes {
		return &mpierr.Error{Op: "collective", Class: mpierr.ProcFailed, Rank: failed, Err: errRevoked}
	}
	return nil
}

// named returns err as the error of call op.
func (c *Comm) named(op string, err error) *mpierr.Error {
	named := &mpierr.Error{Op: op, Class: mpierr.Closed, Rank: mpierr.NoRank, Err: err}
	var e *mpierr.Error
	switch {
	case c.job.poller.Closed():
		named.Err = net.ErrClosed
	case errors.As(err, &e):
		named.Class, named.Rank, named.Err = e.Class, e.Rank, e.Err
	case errors.Is(err, context.DeadlineExceeded):
		named.Class = mpierr.Timeout
	}
	return named
}

// failed names the collective in err, and breaks the communicator.
func (c *Comm) failed(op string, err error) error {
	named := c.named(op, err)
	if c.job.poller.Closed() {
		return named
	}
	culprit := named.Rank
	if culprit == mpierr.NoRank {
		culprit = c.job.rank
	}
	eng, now := c.job.poller.Lock()
	eng.Revoke(now, c.context, culprit)
	eng.Tick(now)
	c.job.poller.Unlock()
	return named
}
