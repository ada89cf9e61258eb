// Package comm holds groups and communicators and what their ranks do together:
// collectives, and messages between two ranks. The ranks of a job come from rma.Join, and
// the communicator of all of them from rma.Node.World.
//
// Functions such as Send and Bcast take slices of elements with a predefined datatype,
// and go without a copy. Methods such as SendBuffer and BcastBuffer take a buffer.Buffer: memory
// that a derived datatype describes, or Go structs, whose data is packed on the way.
//
// # Messages
//
// Send, Recv and their relatives are point-to-point communication (chapter 3 of the
// standard). A receive matches a message of the same communicator with the source and
// the tag that it asks for. Messages of one rank to another on a communicator are
// matched in the order sent, and receives in the order posted. A message of up to 8 KiB
// leaves with the send; a longer one stays in the sender's memory until a receive
// matches it, so a blocking send may wait for the receive, as the standard's does. Each
// rank keeps a bounded number of messages that it has not asked for: beyond, the senders
// wait. Progress is the library's, whatever the program does.
//
// They fail with these classes: ErrRank and ErrTag for an invalid rank or tag; ErrComm after
// Comm.Free; ErrTruncate if a message is longer than the memory for it; ErrProcFailed if the
// other rank has failed, has left the job, or a collective has broken the communicator;
// ErrTimeout, with the error of ctx, if that ends; ErrClosed after rma.Node.Close. A receive from
// AnySource fails if any member has failed, since that member might have sent the
// message, or if all others have left. A message that is there already can be received
// in any case.
//
// # Collectives
//
// All ranks of a communicator call them in the same order, one after the other, with the
// same root and operator, and with slices of the same length. They block until this rank has its
// part. A rank that sees another length gets class ErrCount. Of different roots or operators
// nobody need be told: if each of two ranks is the root of a Bcast, both send, neither receives, and
// both return nil. If a member fails or gives up, or its ctx ends, the others get the class
// ErrProcFailed, and the communicator is broken: so are its later collectives.
//
// # After a failure
//
// A rank of another build, which speaks another version of the frames, counts as failed
// from the first call on that needs it. In the error of that, errors.Is finds the class
// ErrUnsupported too.
//
// The survivors of a communicator c go on with one of their own:
//
//	func survive(ctx context.Context, c *comm.Comm, tag int) (*comm.Comm, error) {
//		for {
//			d, err := c.CreateGroup(ctx, c.Group().Difference(c.Failed()), tag)
//			if !errors.Is(err, comm.ErrProcFailed) {
//				return d, err
//			}
//		}
//	}
//
// All survivors must call CreateGroup, so all must learn of the failure. A collective
// tells them, even one that this rank only begins and gives up. They need not know of the
// same failures: Failed may be empty at first. A member that lives and does not call is
// waited for until ctx ends. If other ranks fail meanwhile, or later, the survivors call
// CreateGroup again. They call it on c and not on the communicator that it returned,
// because some may not have that one. Windows on c go on serving calls that need no
// failed member. New windows are made on the new communicator.
package comm

import (
	"context"
	"sync/atomic"

	"github.com/xdprma/xdprma/internal/attribute"
	"github.com/xdprma/xdprma/internal/device/poller"
	"github.com/xdprma/xdprma/internal/inside"
	"github.com/xdprma/xdprma/internal/launch/job"
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
	job *job.Job

	errhandler atomic.Pointer[Errhandler]
	name       atomic.Pointer[string]
	attributes attribute.Set
	freed      atomic.Bool
	self       bool // of this rank alone, as long as the job

	busy    chan struct{}   // holds something while a collective goes on: one at a time
	members collective.Comm // carries collectives out; its turn and what goes on belong to whom busy lets in
}

func newComm(j *job.Job, context uint32, group []int) *Comm {
	return commOf(j, collective.New(context, group, j.Rank(), j.Size()))
}

func commOf(j *job.Job, members collective.Comm) *Comm {
	defer j.Poller().Guard()
	e := j.Poller().Lock()
	e.OpenContext(members.Context, members.Group)
	j.Poller().Unlock()
	return &Comm{job: j, busy: make(chan struct{}, 1), members: members}
}

func init() {
	inside.World = func(j *job.Job) any { return newComm(j, collective.WorldContext, nil) }
	inside.Self = func(j *job.Job) any {
		c := newComm(j, j.Contexts.Next(), []int{j.Rank()})
		c.self = true
		return c
	}
	inside.Job = func(c any) *job.Job { return c.(*Comm).job }
	inside.ForWindow = func(c any, id uint32) (inner, ending any) { return c.(*Comm).forWindow(id) }
	inside.Break = func(c, other any, err error) { c.(*Comm).breakWith(other.(*Comm), err) }
	inside.Barrier = func(ctx context.Context, c any, op string) error { return c.(*Comm).barrier(ctx, op) }
	inside.Gather = func(ctx context.Context, c any, op string, mine []byte) ([][]byte, error) {
		return c.(*Comm).gatherAll(ctx, op, mine)
	}
	inside.Request = func(p *poller.Poller, cond poller.Condition, finish func() error) any {
		return newRequest(p, cond, finish)
	}
}

// forWindow is inside.ForWindow.
func (c *Comm) forWindow(id uint32) (inner, ending *Comm) {
	if id == 0 || id >= collective.SecondContext {
		return nil, nil
	}
	title := func() string { return c.job.Windows().Title(id) }
	of := func(context uint32) *Comm {
		d := newComm(c.job, context|collective.WindowContext, c.members.Group)
		d.members.Title = title
		return d
	}
	return of(id), of(id | collective.SecondContext)
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

// WorldRank returns the rank in the job of a rank of the communicator.
func (c *Comm) WorldRank(rank int) int { return c.members.WorldRank(rank) }

// rankOf returns the rank in the communicator of a rank in the job, mpierr.NoRank if it
// is none of its.
func (c *Comm) rankOf(world int) int { return c.members.RankOf(world) }

// named returns err, which comes from the job, as the error of call op on c. Where it
// concerns no rank itself, it is at the given one, which the call waits for. Once Job.Close
// was called, that is what has ended the call.
func (c *Comm) named(op string, rank int, err error) *mpierr.Error {
	if c.job.Closed() {
		err = job.ErrClosed
	}
	return c.members.Named(op, rank, err)
}

// breakWith is inside.Break.
func (c *Comm) breakWith(other *Comm, err error) {
	c.job.InEngine(func(e *engine.Engine) {
		other.members.Renounce(e, &collective.Part{Context: c.members.Context, Group: c.members.Group}, err)
	})
}
