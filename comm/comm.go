package comm

import (
	"context"
	"errors"
	"net"
	"slices"
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
	freed      atomic.Bool
	greeted    sync.Once // the members have been called, for receives from any of them

	busy chan struct{} // holds something while a collective goes on: one at a time
	turn uint32        // collectives done, so that messages of two cannot be mixed up

	spare []uint64 // memory for collectives; see scratch
}

func newComm(j *Job, context uint32, group []int) *Comm {
	c := &Comm{job: j, context: context, group: group, rank: j.rank, size: j.size, busy: make(chan struct{}, 1)}
	if group != nil {
		c.size, c.rank = len(group), c.rankOf(j.rank)
	}
	return c
}

// windowContext marks the message contexts of windows; the rest is the window's id.
const windowContext = 1 << 31

// secondContext marks the second of the two that each communicator and each window has,
// for what has to work even if a collective on the first was given up: windows end on it,
// and on a communicator's a group creates another.
const secondContext = 1 << 30

// ForWindow returns communicators of the same ranks for the messages of the window
// with the given id. They are apart from those of c, so that the window's
// collectives and those of the program do not disturb each other. The second is for
// what has to work even if a collective on the first was given up. Both are nil if id is
// none that WindowID returns while there are some.
func (c *Comm) ForWindow(id uint32) (inner, ending *Comm) {
	if id == 0 || id >= secondContext {
		return nil, nil
	}
	return newComm(c.job, windowContext|id, c.group), newComm(c.job, windowContext|secondContext|id, c.group)
}

// Compare returns how c and other relate (MPI_Comm_compare): Identical if they are
// the same, Congruent if only their groups are. It is local.
func (c *Comm) Compare(other *Comm) Similarity {
	s := c.Group().Compare(other.Group())
	if s == Identical && c.context != other.context {
		return Congruent
	}
	return s
}

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

// rankOf returns the rank in the communicator of a rank in the job, mpierr.NoRank if
// it is none of its.
func (c *Comm) rankOf(world int) int {
	if c.group == nil {
		return world
	}
	return slices.Index(c.group, world)
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

var errClosed = &mpierr.Error{Op: "wait", Class: mpierr.Closed, Rank: mpierr.NoRank, Err: net.ErrClosed}

// usable returns nil unless the communicator is freed or broken, or the job closed.
func (c *Comm) usable() error {
	if c.freed.Load() {
		return errFreed("collective")
	}
	e, _ := c.job.poller.Lock()
	defer c.job.poller.Unlock()
	if c.job.poller.Closed() {
		return errClosed
	}
	if failed, yes := e.Revoked(c.context); yes {
		return &mpierr.Error{Op: "collective", Class: mpierr.ProcFailed, Rank: c.rankOf(failed), Err: errRevoked}
	}
	return nil
}

// named returns err, which comes from the job, as the error of call op on c. Where it
// concerns no rank itself, it is at the given one, which the call waits for.
func (c *Comm) named(op string, rank int, err error) *mpierr.Error {
	if c.job.poller.Closed() {
		err = errClosed
	}
	e := mpierr.Named(op, mpierr.NoRank, err)
	if e.Rank != mpierr.NoRank {
		e.Rank = c.rankOf(e.Rank)
	} else if e.Class != mpierr.Closed {
		e.Rank = rank
	}
	return e
}

// failed names the collective in err, whose rank is one of c, and breaks the
// communicator.
func (c *Comm) failed(op string, err error) error {
	if c.job.poller.Closed() {
		return mpierr.Named(op, mpierr.NoRank, errClosed)
	}
	e := mpierr.Named(op, mpierr.NoRank, err)
	if e.Class == mpierr.Timeout {
		e.Rank = mpierr.NoRank // the rank that this one waited for may have waited itself
	}
	c.Break(c, e)
	return e
}

// Break has c's collectives, and messages that are not there yet, fail at every member,
// as a failed collective does: this rank has failed with err, of a call on another
// communicator. It is for calls that make a communicator which others may have then.
func (c *Comm) Break(other *Comm, err error) {
	culprit := c.job.rank
	var e *mpierr.Error
	if errors.As(err, &e) && e.Rank >= 0 && e.Rank < other.size { // a root may be no rank
		culprit = other.WorldRank(e.Rank)
	}
	eng, now := c.job.poller.Lock()
	defer c.job.poller.Unlock()
	if !c.job.poller.Closed() {
		eng.Revoke(now, c.context, culprit)
		eng.Tick(now)
	}
}
