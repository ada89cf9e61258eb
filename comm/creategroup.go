package comm

import (
	"context"
	"slices"

	"github.com/xdprma/xdprma/mpierr"
)

const createGroup = "comm create_group"

// CreateGroup returns a communicator of the processes of g, a group of c's, in the
// group's order (MPI_Comm_create_group, section 6.4.2 of the standard's 3.1). It is
// collective over the members of g, which pass the same group and tag, and nobody else
// calls it. It needs nothing of c but that the members of g live. So it works where c is
// broken: with it the survivors of a failure go on. It blocks until all members have
// called, or it has failed at one.
//
// Calls on c at the same time need different tags if a process is in the groups of both.
// Tags are from 0 to MaxTag. After one call has failed, the next with the same group and tag
// may fail because of that one, and can be made again. The new communicator has c's error
// handler and no attributes.
//
// If a member of g is known to have failed (see Failed), or does so meanwhile, the call
// fails at all with class ErrProcFailed, which names it. If two members that others hear
// have lost each other, it names one of them, with which the others part. Whoever is
// told of a failure by another first listens for the rank itself, for up to
// Limits.DeadAfter. If ctx ends at a member, or the member frees c, that member gets the
// class ErrTimeout, or ErrComm. The others get ErrProcFailed, which names the member; if they
// have their communicator already, they find it broken. A member that never calls is
// waited for until ctx ends. Other classes: ErrGroup if g has processes outside c, or not
// this one; ErrTag; ErrNoMem if there are no more communicators to be had; ErrClosed.
func (c *Comm) CreateGroup(ctx context.Context, g Group, tag int) (_ *Comm, err error) {
	defer c.handle(&err)
	if err := c.checkTag(createGroup, tag); err != nil {
		return nil, err
	}
	for _, w := range g.world {
		if w >= c.job.Size() || c.rankOf(w) < 0 {
			return nil, mpierr.New(createGroup, mpierr.Group, mpierr.NoRank, "the group has processes that are not in the communicator")
		}
	}
	if g.find(c.job.Rank()) == Undefined {
		return nil, mpierr.New(createGroup, mpierr.Group, mpierr.NoRank, "this process is not in the group: only its members call")
	}
	k := c.members.CreateGroup(g.world, tag, c.idFor(g))
	if err := c.job.Carry(ctx, k); err != nil {
		return nil, c.named(createGroup, mpierr.NoRank, err)
	}
	p, err := k.Result()
	if err != nil {
		return nil, err
	}
	return c.made(p.Made(c.job.Rank(), c.job.Size())), nil
}

// idFor returns the id that the lowest rank of g, if it is this one, gives a communicator.
func (c *Comm) idFor(g Group) uint32 {
	if slices.Min(g.world) != c.job.Rank() {
		return 0
	}
	return c.job.Contexts.Next()
}

// Failed returns the group of c's processes that this rank knows to have failed, or to
// have left the job, in c's order (MPI_Comm_get_failed of the proposals for fault
// tolerance). It is local, does not block, and asks nobody. A rank learns of a failure
// when a call of its own needs the process that failed, or may be served by any. When
// another rank tells it of a failure, because this has broken a communicator or that rank
// calls CreateGroup, it listens for the process, and knows of the failure once that has
// been silent for Limits.DeadAfter. So what one rank says puts no other out. A process that
// gave up a collective has not failed. One that has failed stays in the group, even if it
// is started again: such a process finds itself in the group if others had met the earlier
// one. A rank that the others have parted with, because it and another had lost each other,
// finds that they have failed.
func (c *Comm) Failed() Group {
	e := c.job.Poller().Lock()
	defer c.job.Poller().UnlockQuiet()
	return c.Group().filter(e.Gone)
}
