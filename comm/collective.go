package comm

import (
	"context"

	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/mpierr"
)

// takeTurn waits until this rank is in no collective of c.
func (c *Comm) takeTurn(ctx context.Context, op string) error {
	select {
	case c.busy <- struct{}{}:
		return nil
	default:
	}
	if ctx == nil {
		ctx = context.Background() // what it begins is refused
	}
	select {
	case c.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		err := c.named(op, mpierr.NoRank, ctx.Err())
		c.job.InEngine(func(e *engine.Engine) { c.members.Break(e, c.members.Context, err) }) // the others wait
		return err
	}
}

func (c *Comm) endTurn() { <-c.busy }

// inTurn carries out what begin begins as c's next collective. result, unless it is nil,
// is called when that has succeeded.
func (c *Comm) inTurn(ctx context.Context, op string, begin func(*collective.Comm) *collective.Call, result func(*collective.Call)) error {
	if err := c.takeTurn(ctx, op); err != nil {
		return err
	}
	defer c.endTurn()
	k := begin(&c.members)
	if c.freed.Load() {
		k.Refuse(errFreed(op))
	}
	if err := c.job.Carry(ctx, k); err != nil {
		return c.named(op, mpierr.NoRank, err)
	}
	switch err := k.Err(); {
	case err != nil && c.job.Closed():
		return c.named(op, mpierr.NoRank, err)
	case err != nil:
		return err
	case result != nil:
		result(k)
	}
	return nil
}

// collective is inTurn that tells c's handler.
func (c *Comm) collective(ctx context.Context, op string, begin func(*collective.Comm) *collective.Call) (err error) {
	defer c.handle(&err)
	return c.inTurn(ctx, op, begin, nil)
}

// Barrier blocks until every rank of the communicator has called it (MPI_Barrier), or
// ctx is done. It takes one message a rank in each of log2(Size) rounds. Stores of other
// ranks before their call are visible after it. If a member fails or gives up, the
// others get the class ErrProcFailed.
func (c *Comm) Barrier(ctx context.Context) (err error) {
	defer c.handle(&err)
	return c.barrier(ctx, "barrier")
}

// barrier is Barrier as a part of the call op.
func (c *Comm) barrier(ctx context.Context, op string) error {
	return c.inTurn(ctx, op, func(m *collective.Comm) *collective.Call { return m.Barrier(op) }, nil)
}

// AllgatherBytes gives every rank the blocks of all ranks, by rank, in memory of their
// own (MPI_Allgather). All blocks have the same length. It blocks as Barrier does.
func (c *Comm) AllgatherBytes(ctx context.Context, mine []byte) (blocks [][]byte, err error) {
	defer c.handle(&err)
	return c.gatherAll(ctx, "allgather", mine)
}

// gatherAll is AllgatherBytes as a part of the call op.
func (c *Comm) gatherAll(ctx context.Context, op string, mine []byte) (blocks [][]byte, err error) {
	err = c.inTurn(ctx, op, func(m *collective.Comm) *collective.Call { return m.AllgatherBytes(op, mine) },
		func(k *collective.Call) { blocks = k.Blocks() })
	return blocks, err
}

// BcastBytes gives every rank what rank root passes (MPI_Bcast); other ranks'
// data is ignored. All name the same root, as for Bcast. It blocks until this rank has its copy.
func (c *Comm) BcastBytes(ctx context.Context, data []byte, root int) (all []byte, err error) {
	defer c.handle(&err)
	err = c.inTurn(ctx, "broadcast", func(m *collective.Comm) *collective.Call { return m.BcastBytes(data, root) },
		func(k *collective.Call) { all = k.Data() })
	return all, err
}
