package comm

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/xdprma/xdprma/internal/mpierr"
)

// Barrier blocks until every rank of the communicator has called it
// (MPI_Barrier), or ctx is done. It takes one message a rank in each of
// log2(Size) rounds. What other ranks wrote before their call is visible after it.
// If a member fails or gives up, the others get the class ProcFailed.
func (c *Comm) Barrier(ctx context.Context) (err error) {
	defer c.handle(ctx, &err)
	return c.inTurn(ctx, "barrier", 0, nil, func() error { return c.barrier(ctx) })
}

// inTurn runs f as c's next collective. Whatever is wrong breaks the communicator, since
// the others wait. check, unless it is nil, says what is wrong with this rank's
// arguments: where all ranks make the same mistake, all are told of it, and not of each
// other's failure.
func (c *Comm) inTurn(ctx context.Context, op string, root int, check, f func() error) error {
	select {
	case c.busy <- struct{}{}:
	default:
		select {
		case c.busy <- struct{}{}:
		case <-ctx.Done():
			return c.failed(op, ctx.Err())
		}
	}
	defer func() { <-c.busy }()
	var err error
	if root < 0 || root >= c.size {
		err = mpierr.New(op, mpierr.Rank, root, "the communicator has %d ranks", c.size)
	} else if check != nil {
		err = check()
	}
	if err == nil {
		err = c.usable()
	}
	if err == nil {
		err = f()
	}
	c.turn++
	if err != nil {
		return c.failed(op, err)
	}
	return nil
}

func (c *Comm) barrier(ctx context.Context) error {
	round := 0
	for dist := 1; dist < c.size; dist *= 2 {
		if err := c.exchangeWith(ctx, "barrier", (c.rank+dist)%c.size, nil, (c.rank-dist+c.size)%c.size, nil, round); err != nil {
			return err
		}
		round++
	}
	return nil
}

// exchangeWith sends out to one rank and fills in with what another sends.
func (c *Comm) exchangeWith(ctx context.Context, op string, to int, out []byte, from int, in []byte, round int) error {
	s, err := c.swap(ctx, op, out, to, c.tag(round), in, from, c.tag(round))
	return c.whole(op, s, err, from, len(in))
}

// giveTo sends data to a rank that takes it with takeFrom.
func (c *Comm) giveTo(ctx context.Context, op string, to, round int, data []byte) error {
	return c.push(ctx, op, data, to, c.tag(round))
}

// takeFrom fills data with what a rank gives.
func (c *Comm) takeFrom(ctx context.Context, op string, from, round int, data []byte) error {
	s, err := c.pull(ctx, op, data, from, c.tag(round), false)
	return c.whole(op, s, err, from, len(data))
}

// whole refuses a message of another length than was expected.
func (c *Comm) whole(op string, s Status, err error, from, want int) error {
	if err != nil && !errors.Is(err, mpierr.Truncate) || s.Count == want {
		return err
	}
	return mpierr.New(op, mpierr.Count, from, "it sent %d bytes where %d were expected: slices of different lengths", s.Count, want)
}

// AllgatherBytes gives every rank the blocks of all ranks, by rank, in memory of their
// own (MPI_Allgather). All blocks have the same length. It blocks as Barrier does.
func (c *Comm) AllgatherBytes(ctx context.Context, mine []byte) (blocks [][]byte, err error) {
	defer c.handle(ctx, &err)
	return c.gatherAll(ctx, "allgather", mine)
}

// gatherAll is AllgatherBytes as a part of the call op.
func (c *Comm) gatherAll(ctx context.Context, op string, mine []byte) (blocks [][]byte, err error) {
	err = c.inTurn(ctx, op, 0, nil, func() (err error) {
		n := len(mine)
		all := make([]byte, n*c.size)
		if err := c.allGather(ctx, mine, all); err != nil {
			return err
		}
		blocks = make([][]byte, c.size)
		for i := range c.size {
			blocks[(c.rank+i)%c.size] = all[i*n : (i+1)*n : (i+1)*n]
		}
		return nil
	})
	return blocks, err
}

// allGather fills all with the blocks of ranks c.rank, c.rank+1 and so on. It doubles what
// each rank knows in every round (Bruck's algorithm).
func (c *Comm) allGather(ctx context.Context, mine, all []byte) error {
	n := len(mine)
	copy(all, mine)
	round := 0
	for dist := 1; dist < c.size; dist *= 2 {
		part := min(dist, c.size-dist) * n
		to, from := (c.rank-dist+c.size)%c.size, (c.rank+dist)%c.size
		if err := c.exchangeWith(ctx, "allgather", to, all[:part], from, all[dist*n:dist*n+part], round); err != nil {
			return err
		}
		round++
	}
	return nil
}

// keptScratch bounds what a communicator keeps for its next collective.
const keptScratch = 256 << 10

// scratch returns n bytes, aligned for any element, for the collective whose turn it is.
func (c *Comm) scratch(n int) []byte {
	if n > keptScratch {
		return bytesOf(make([]uint64, (n+7)/8))[:n]
	}
	if n > 8*len(c.spare) {
		c.spare = make([]uint64, (n+7)/8)
	}
	return bytesOf(c.spare)[:n]
}

// BcastBytes gives every rank what rank root passes (MPI_Bcast); other ranks'
// data is ignored. It blocks until this rank has its copy.
func (c *Comm) BcastBytes(ctx context.Context, data []byte, root int) (_ []byte, err error) {
	defer c.handle(ctx, &err)
	var all []byte
	err = c.inTurn(ctx, "broadcast", root, nil, func() (err error) {
		all, err = c.broadcast(ctx, data, root)
		return err
	})
	return all, err
}

// A broadcast is a message with the length and the start of the data, and pieces of
// the rest: so a rank makes room for no more than it is about to receive.
const (
	firstPiece = 1016
	nextPiece  = 1 << 20
)

// broadcast goes down a binomial tree whose root is rank root.
func (c *Comm) broadcast(ctx context.Context, data []byte, root int) ([]byte, error) {
	const op = "broadcast"
	me := (c.rank - root + c.size) % c.size
	var first [8 + firstPiece]byte
	dist := 1
	for ; dist < c.size; dist *= 2 {
		if me&dist != 0 {
			var err error
			if data, err = c.takeBroadcast(ctx, (me-dist+root)%c.size, first[:]); err != nil {
				return nil, err
			}
			break
		}
	}
	binary.LittleEndian.PutUint64(first[:], uint64(len(data)))
	n := copy(first[8:], data)
	for dist /= 2; dist > 0; dist /= 2 {
		if me+dist >= c.size {
			continue
		}
		to := (me + dist + root) % c.size
		if err := c.giveTo(ctx, op, to, 0, first[:8+n]); err != nil {
			return nil, err
		}
		for at := n; at < len(data); at += nextPiece {
			if err := c.giveTo(ctx, op, to, 0, data[at:min(at+nextPiece, len(data))]); err != nil {
				return nil, err
			}
		}
	}
	return data, nil
}

func (c *Comm) takeBroadcast(ctx context.Context, from int, first []byte) ([]byte, error) {
	const op = "broadcast"
	s, err := c.pull(ctx, op, first, from, c.tag(0), false)
	if err != nil {
		return nil, err
	}
	var total uint64
	if s.Count >= 8 {
		total = binary.LittleEndian.Uint64(first)
	}
	if s.Count < 8 || uint64(s.Count-8) != min(total, firstPiece) {
		return nil, mpierr.New(op, mpierr.Intern, from, "it sent %d bytes as the start of %d", s.Count, total)
	}
	data := append([]byte(nil), first[8:s.Count]...)
	for uint64(len(data)) < total {
		at, n := len(data), int(min(nextPiece, total-uint64(len(data))))
		data = append(data, make([]byte, n)...)
		if err := c.takeFrom(ctx, op, from, 0, data[at:]); err != nil {
			return nil, err
		}
	}
	return data, nil
}
