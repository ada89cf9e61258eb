package comm

import (
	"context"
	"slices"

	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/mpierr"
)

// Split divides the ranks of c into communicators by colour, ordered by key and
// then by rank (MPI_Comm_split). It is collective over c and blocks as Barrier
// does. A rank whose colour is Undefined gets nil; other colours are not negative
// (class ErrArg). The new communicator has c's error handler and no attributes. If the call
// fails at a member, those that have their communicator nevertheless find it broken.
func (c *Comm) Split(ctx context.Context, color, key int) (_ *Comm, err error) {
	defer c.handle(&err)
	wrong := color < 0 && color != Undefined
	if wrong {
		color = Undefined // the others must not wait for this rank
	}
	d, err := c.split(ctx, "comm split", color, key, nil)
	if err == nil && wrong {
		err = mpierr.New("comm split", mpierr.Arg, mpierr.NoRank, "a colour is not negative, or Undefined")
	}
	return d, err
}

// split makes the communicators of a call op. prepare, unless it is nil, is called with
// this rank's before anybody has it; what it fails with fails the call at its members.
func (c *Comm) split(ctx context.Context, op string, color, key int, prepare func(d *Comm) error) (*Comm, error) {
	if err := c.takeTurn(ctx, op); err != nil {
		return nil, err
	}
	defer c.endTurn()
	var d *Comm
	s := c.members.Split(op, c.job.Contexts.Next(), color, key)
	s.Prepare = func(p *collective.Part) error {
		d = c.made(collective.New(p.Context, p.Group, c.job.Rank(), c.job.Size()))
		if prepare == nil {
			return nil
		}
		c.endTurn() // a callback may call collectives, at all ranks
		defer func() { c.busy <- struct{}{} }()
		return prepare(d)
	}
	if c.freed.Load() {
		s.Refuse(errFreed(op))
	}
	if err := c.job.Carry(ctx, s); err != nil {
		return nil, c.named(op, mpierr.NoRank, err)
	}
	if _, err := s.Result(); err != nil {
		return nil, err
	}
	return d, nil
}

// made returns a new communicator that was made of c.
func (c *Comm) made(members collective.Comm) *Comm {
	d := commOf(c.job, members)
	d.errhandler.Store(c.errhandler.Load())
	return d
}

// Dup returns a communicator of the same ranks whose messages are apart from c's
// (MPI_Comm_dup). It is collective over c and blocks as Barrier does. The new
// communicator has c's error handler, and the attributes that their keys' copy functions
// keep. Class ErrOther if a copy function fails: then Dup fails at every member.
func (c *Comm) Dup(ctx context.Context) (_ *Comm, err error) {
	defer c.handle(&err)
	var made *Comm
	d, err := c.split(ctx, "comm dup", 0, 0, func(d *Comm) error {
		made = d
		return callbackError("comm dup", c.attributes.CopyTo(c, d, &d.attributes))
	})
	if err != nil && made != nil {
		_ = made.attributes.Clear(made) // with the failure that is reported
	}
	return d, err
}

// Create returns a communicator of the processes of a group, which are c's, in the
// group's order. It returns nil to a process outside the group (MPI_Comm_create). It is
// collective over c and blocks as Barrier does. All members of a group pass it; groups
// without a common member may be passed at once, and each gets a communicator of its
// own. Class ErrArg at every member of a group that has a process outside c, or that not
// all of its members have passed, and at whoever passes the former.
func (c *Comm) Create(ctx context.Context, g Group) (_ *Comm, err error) {
	defer c.handle(&err)
	rank, color := g.find(c.job.Rank()), g.color()
	if rank == Undefined {
		color = Undefined
	}
	d, err := c.split(ctx, "comm create", color, rank, nil)
	switch {
	case err != nil:
		return nil, err
	case slices.ContainsFunc(g.world, func(w int) bool { return c.rankOf(w) < 0 }):
		return nil, mpierr.New("comm create", mpierr.Arg, mpierr.NoRank, "the group has processes that are not in the communicator")
	case d != nil && d.Size() != len(g.world):
		return nil, mpierr.New("comm create", mpierr.Arg, mpierr.NoRank, "%d of the group's %d processes have passed it: the others passed another", d.Size(), len(g.world))
	}
	return d, nil
}

// SplitHost divides the ranks of c into communicators of those that share a host:
// the same running kernel and network namespace (MPI_Comm_split_type with
// MPI_COMM_TYPE_SHARED). Otherwise it is as Split with the given key.
func (c *Comm) SplitHost(ctx context.Context, key int) (_ *Comm, err error) {
	defer c.handle(&err)
	const op = "comm split_type"
	mine := c.job.HostID()
	blocks, err := c.gatherAll(ctx, op, mine[:])
	if err != nil {
		return nil, err
	}
	first := slices.IndexFunc(blocks, func(b []byte) bool { return string(b) == string(mine[:]) })
	return c.split(ctx, op, first, key, nil)
}

// Free ends this rank's use of c (MPI_Comm_free): the delete functions of its
// attributes run. It is local and does not block. Requests that have begun and windows
// that were created on c go on; calls on c fail with class ErrComm, except those that
// only look at it. Messages on c that no receive has been begun for are dropped, be they
// here or still to come, and their sends complete. Communicators that others are creating
// with CreateGroup are not disturbed, unless they wait for this rank to call it. Classes: ErrArg for those of
// rma.Node.World and Self, which cannot be freed; ErrComm the second time; ErrOther if a callback failed:
// c is freed all the same.
func (c *Comm) Free() (err error) {
	defer c.handle(&err)
	if c.members.Context == collective.WorldContext || c.self {
		return mpierr.New("comm free", mpierr.Arg, mpierr.NoRank, "%s lasts as long as the job", c.Name())
	}
	if c.freed.Swap(true) {
		return errFreed("comm free")
	}
	c.job.InEngine(func(e *engine.Engine) {
		e.FreeContext(c.members.Context)
		e.FreeContext(c.members.Context | collective.SecondContext) // of which others need nothing from this rank
		c.job.Poller().Tick()
	})
	return callbackError("comm free", c.attributes.Clear(c))
}

func errFreed(op string) error {
	return mpierr.New(op, mpierr.Comm, mpierr.NoRank, "the communicator has been freed")
}
