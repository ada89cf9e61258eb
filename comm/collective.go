package comm

import (
	"context"

	"github.com/xdprma/xdprma/internal/mpierr"
)

// Barrier blocks until every rank of the communicator has called it
// (MPI_Barrier), or ctx is done. It takes one message a rank in each of
// log2(Size) rounds. What other ranks wrote before their call is visible after it.
// If a member fails or gives up, the others get the class ProcFailed.
func (c *Comm) Barrier(ctx context.Context) (err error) {
	defer c.handle(ctx, &err)
	c.mu.Lock()
	defer c.mu.Unlock()
	err = c.usable()
	if err == nil {
		err = c.barrier(ctx)
	}
	c.turn++
	if err == nil {
		return nil
	}
	return c.failed("barrier", err)
}

func (c *Comm) barrier(ctx context.Context) error {
	round := 0
	for dist := 1; dist < c.size; dist *= 2 {
		if err := c.send(ctx, (c.rank+dist)%c.size, c.tag(round), nil); err != nil {
			return err
		}
		data, err := c.receive(ctx, (c.rank-dist+c.size)%c.size, c.tag(round), c.buf[:0])
		if err != nil {
			return err
		}
		c.buf = data
		round++
	}
	return nil
}

// AllGather gives every rank the blocks of all ranks, by rank (MPI_Allgather).
// All blocks have the same length. It blocks as Barrier does.
func (c *Comm) AllGather(ctx context.Context, mine []byte) (blocks [][]byte, err error) {
	defer c.handle(ctx, &err)
	return c.gatherAll(ctx, mine)
}

func (c *Comm) gatherAll(ctx context.Context, mine []byte) (blocks [][]byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err = c.usable()
	if err == nil {
		blocks, err = c.allGather(ctx, mine)
	}
	c.turn++
	if err != nil {
		return nil, c.failed("allgather", err)
	}
	return blocks, nil
}

// allGather doubles what each rank knows in every round (Bruck's algorithm).
func (c *Comm) allGather(ctx context.Context, mine []byte) ([][]byte, error) {
	n := len(mine)
	all := append(make([]byte, 0, n*c.size), mine...) // of ranks c.rank, c.rank+1, ...
	round := 0
	for dist := 1; dist < c.size; dist *= 2 {
		count := min(dist, c.size-dist)
		if err := c.send(ctx, (c.rank-dist+c.size)%c.size, c.tag(round), all[:count*n]); err != nil {
			return nil, err
		}
		var err error
		before := len(all)
		if all, err = c.receive(ctx, (c.rank+dist)%c.size, c.tag(round), all); err != nil {
			return nil, err
		}
		if len(all)-before != count*n {
			return nil, mpierr.New("allgather", mpierr.Count, c.WorldRank((c.rank+dist)%c.size),
				"it sent %d bytes where %d were expected: blocks of different lengths", len(all)-before, count*n)
		}
		round++
	}
	blocks := make([][]byte, c.size)
	for i := range c.size {
		blocks[(c.rank+i)%c.size] = all[i*n : (i+1)*n : (i+1)*n]
	}
	return blocks, nil
}

// Broadcast gives every rank what rank root passes (MPI_Bcast); other ranks'
// data is ignored. It blocks until this rank has its copy.
func (c *Comm) Broadcast(ctx context.Context, data []byte, root int) (_ []byte, err error) {
	defer c.handle(ctx, &err)
	if root < 0 || root >= c.size {
		return nil, mpierr.New("broadcast", mpierr.Rank, root, "the communicator has %d ranks", c.size)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err = c.usable()
	if err == nil {
		data, err = c.broadcast(ctx, data, root)
	}
	c.turn++
	if err != nil {
		return nil, c.failed("broadcast", err)
	}
	return data, nil
}

// broadcast goes down a binomial tree whose root is rank root.
func (c *Comm) broadcast(ctx context.Context, data []byte, root int) ([]byte, error) {
	me := (c.rank - root + c.size) % c.size
	dist := 1
	for ; dist < c.size; dist *= 2 {
		if me&dist != 0 {
			var err error
			if data, err = c.receive(ctx, (me-dist+root)%c.size, c.tag(0), nil); err != nil {
				return nil, err
			}
			break
		}
	}
	for dist /= 2; dist > 0; dist /= 2 {
		if me+dist < c.size {
			if err := c.send(ctx, (me+dist+root)%c.size, c.tag(0), data); err != nil {
				return nil, err
			}
		}
	}
	return data, nil
}
