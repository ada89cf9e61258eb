package comm

import (
	"net"
	"sync/atomic"

	"github.com/xdprma/xdprma/internal/attribute"
	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/mpierr"
)

// Comm is a communicator: a group of ranks and a message context of their own.
// Its collectives are called by all ranks of the group in the same order, and by
// one goroutine of each rank at a time. Once a collective has failed at a member,
// be it because its context ended, the communicator is broken: that collective or
// the next one fails at every member, so that none waits for one that has given up.
type Comm struct {
	job *Job

	errhandler atomic.Pointer[Errhandler]
	name       atomic.Pointer[string]
	attributes attribute.Set
	freed      atomic.Bool

	busy    chan struct{}   // holds something while a collective goes on: one at a time
	members collective.Comm // carries collectives out; its turn and what goes on belong to whom busy lets in
}

func newComm(j *Job, context uint32, group []int) *Comm {
	return commOf(j, collective.New(context, group, j.rank, j.size))
}

func commOf(j *Job, members collective.Comm) *Comm {
	e := j.poller.Lock()
	e.OpenContext(members.Context, members.Group)
	j.poller.Unlock()
	return &Comm{job: j, busy: make(chan struct{}, 1), members: members}
}

// ForWindow returns communicators of the same ranks for the messages of the window with
// the given id. Their messages are apart from those of c, so that the window's
// collectives and the program's do not disturb each other. The second communicator is
// for calls that have to work even if a collective on the first was given up. Both are
// nil if WindowID cannot have returned id.
func (c *Comm) ForWindow(id uint32) (inner, ending *Comm) {
	if id == 0 || id >= collective.SecondContext {
		return nil, nil
	}
	id |= collective.WindowContext
	return newComm(c.job, id, c.members.Group), newComm(c.job, id|collective.SecondContext, c.members.Group)
}

// Compare returns how c and other relate (MPI_Comm_compare): Identical if they are
// the same, Congruent if only their groups are. It is local.
func (c *Comm) Compare(other *Comm) Similarity {
	s := c.Group().Compare(other.Group())
	if s == Identical && c.members.Context != other.members.Context {
		return Congruent
	}
	return s
}

// Rank returns this process's rank in the communicator.
func (c *Comm) Rank() int { return c.members.Rank }

// Size returns the number of ranks in the communicator.
func (c *Comm) Size() int { return c.members.Size }

// Job returns the job that the communicator belongs to.
func (c *Comm) Job() *Job { return c.job }

// WorldRank returns the rank in the job of a rank of the communicator.
func (c *Comm) WorldRank(rank int) int { return c.members.WorldRank(rank) }

// rankOf returns the rank in the communicator of a rank in the job, mpierr.NoRank if it
// is none of its.
func (c *Comm) rankOf(world int) int { return c.members.RankOf(world) }

var errClosed = &mpierr.Error{Op: "wait", Class: mpierr.Closed, Rank: mpierr.NoRank, Err: net.ErrClosed}

// named returns err, which comes from the job, as the error of call op on c. Where it
// concerns no rank itself, it is at the given one, which the call waits for. Once Job.Close
// was called, that is what has ended the call.
func (c *Comm) named(op string, rank int, err error) *mpierr.Error {
	if c.job.closed() {
		err = errClosed
	}
	return c.members.Named(op, rank, err)
}

// Break has c's collectives, and messages that are not there yet, fail at every member,
// as a failed collective does: this rank has failed with err, of a call on another
// communicator, and does not use c. It is for calls that make a communicator which others
// may have then.
func (c *Comm) Break(other *Comm, err error) {
	c.job.inEngine(func(e *engine.Engine) {
		other.members.Renounce(e, &collective.Part{Context: c.members.Context, Group: c.members.Group}, err)
	})
}

// inEngine has f use the engine, unless the job is closed.
func (j *Job) inEngine(f func(e *engine.Engine)) {
	e := j.poller.Lock()
	defer j.poller.Unlock()
	if !j.poller.Closed() {
		f(e)
	}
}
