package comm

import (
	"context"
	"math/bits"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/mpierr"
)

// collective is inTurn that tells c's handler.
func (c *Comm) collective(ctx context.Context, op string, root int, check, f func() error) (err error) {
	defer c.handle(ctx, &err)
	return c.inTurn(ctx, op, root, check, f)
}

// Bcast gives every rank rank root's buf (MPI_Bcast).
func Bcast[T datatype.Element](ctx context.Context, c *Comm, buf []T, root int) error {
	return c.collective(ctx, "bcast", root, nil, func() error { return c.bcast(ctx, bytesOf(buf), root) })
}

// bcast goes down a binomial tree whose root is rank root.
func (c *Comm) bcast(ctx context.Context, data []byte, root int) error {
	me := (c.rank - root + c.size) % c.size
	dist := 1
	for ; dist < c.size; dist *= 2 {
		if me&dist != 0 {
			if err := c.takeFrom(ctx, "bcast", (me-dist+root)%c.size, 1, data); err != nil {
				return err
			}
			break
		}
	}
	for dist /= 2; dist > 0; dist /= 2 {
		if me+dist < c.size {
			if err := c.giveTo(ctx, "bcast", (me+dist+root)%c.size, 1, data); err != nil {
				return err
			}
		}
	}
	return nil
}

// Gather stores the ranks' send, one after the other by rank, in recv at rank root,
// where it is Size times as long; elsewhere it is not looked at (MPI_Gather).
func Gather[T datatype.Element](ctx context.Context, c *Comm, send, recv []T, root int) error {
	in, out := bytesOf(send), bytesOf(recv)
	return c.collective(ctx, "gather", root, func() error { return c.checkGather(in, out, root) },
		func() error { return c.gather(ctx, in, out, root) })
}

func (c *Comm) checkGather(send, recv []byte, root int) error {
	if c.rank != root {
		return nil
	}
	return c.times("gather", "recv", recv, send)
}

func (c *Comm) gather(ctx context.Context, send, recv []byte, root int) error {
	if c.rank != root {
		return c.giveTo(ctx, "gather", root, 0, send)
	}
	n := len(send)
	copy(recv[root*n:], send)
	for i := 1; i < c.size; i++ {
		from := (root + i) % c.size
		if err := c.takeFrom(ctx, "gather", from, 0, recv[from*n:(from+1)*n]); err != nil {
			return err
		}
	}
	return nil
}

// times refuses a buffer that is not Size times as long as one rank's part.
func (c *Comm) times(op, name string, whole, part []byte) error {
	if len(whole) == c.size*len(part) {
		return nil
	}
	return mpierr.New(op, mpierr.Count, mpierr.NoRank, "%s has %d bytes, %d times %d are needed", name, len(whole), c.size, len(part))
}

// Scatter gives rank i the i-th of Size equal parts of rank root's send, which is
// not looked at elsewhere (MPI_Scatter).
func Scatter[T datatype.Element](ctx context.Context, c *Comm, send, recv []T, root int) error {
	in, out := bytesOf(send), bytesOf(recv)
	return c.collective(ctx, "scatter", root, func() error { return c.checkScatter(in, out, root) },
		func() error { return c.scatter(ctx, in, out, root) })
}

func (c *Comm) checkScatter(send, recv []byte, root int) error {
	if c.rank != root {
		return nil
	}
	return c.times("scatter", "send", send, recv)
}

func (c *Comm) scatter(ctx context.Context, send, recv []byte, root int) error {
	if c.rank != root {
		return c.takeFrom(ctx, "scatter", root, 0, recv)
	}
	n := len(recv)
	copy(recv, send[root*n:])
	for i := 1; i < c.size; i++ {
		to := (root + i) % c.size
		if err := c.giveTo(ctx, "scatter", to, 0, send[to*n:(to+1)*n]); err != nil {
			return err
		}
	}
	return nil
}

// Allgather is Gather at every rank (MPI_Allgather).
func Allgather[T datatype.Element](ctx context.Context, c *Comm, send, recv []T) error {
	in, out := bytesOf(send), bytesOf(recv)
	return c.collective(ctx, "allgather", 0, func() error { return c.times("allgather", "recv", out, in) },
		func() error { return c.gatherAtAll(ctx, in, out) })
}

func (c *Comm) gatherAtAll(ctx context.Context, send, recv []byte) error {
	all := c.scratch(len(recv))
	if err := c.allGather(ctx, send, all); err != nil {
		return err
	}
	n := copy(recv, all[(c.size-c.rank)*len(send):]) // from rank 0 on
	copy(recv[n:], all)
	return nil
}

// Alltoall sends the i-th of Size equal parts of send to rank i, which stores it as
// the part of this rank in recv (MPI_Alltoall).
func Alltoall[T datatype.Element](ctx context.Context, c *Comm, send, recv []T) error {
	in, out := bytesOf(send), bytesOf(recv)
	return c.collective(ctx, "alltoall", 0, func() error { return c.checkAlltoall(in, out) },
		func() error { return c.alltoall(ctx, in, out) })
}

func (c *Comm) checkAlltoall(send, recv []byte) error {
	if len(send) != len(recv) || len(send)%c.size != 0 {
		return mpierr.New("alltoall", mpierr.Count, mpierr.NoRank, "send has %d bytes and recv %d, both are %d times the same", len(send), len(recv), c.size)
	}
	return nil
}

// alltoall exchanges with one rank a round.
func (c *Comm) alltoall(ctx context.Context, send, recv []byte) error {
	n := len(send) / c.size
	copy(recv[c.rank*n:(c.rank+1)*n], send[c.rank*n:])
	for i := 1; i < c.size; i++ {
		to, from := (c.rank+i)%c.size, (c.rank-i+c.size)%c.size
		if err := c.exchangeWith(ctx, "alltoall", to, send[to*n:(to+1)*n], from, recv[from*n:(from+1)*n], 0); err != nil {
			return err
		}
	}
	return nil
}

// Reduce combines the ranks' send element by element with op, into recv at rank
// root, where it is as long; elsewhere it is not looked at (MPI_Reduce). The order
// of combination depends on the number of ranks alone. Class Op if op is not
// defined for the elements, or is Replace or NoOp, which are for windows.
func Reduce[T datatype.Element](ctx context.Context, c *Comm, send, recv []T, op datatype.Op, root int) error {
	in, out, basic := bytesOf(send), bytesOf(recv), datatype.BasicOf[T]()
	return c.collective(ctx, "reduce", root, func() error { return checkReduce(in, out, op, basic, c.rank == root) },
		func() error { return c.reduce(ctx, in, out, op, basic, root) })
}

// checkReduce says what is wrong with the arguments of a rank that gets the result, or
// does not.
func checkReduce(send, recv []byte, op datatype.Op, basic datatype.Basic, gets bool) error {
	if op == datatype.NoOp || op == datatype.Replace {
		return mpierr.New("reduce", mpierr.Op, mpierr.NoRank, "operator %s is for windows only", op)
	}
	if err := op.Defined(basic); err != nil {
		return err
	}
	if gets && len(recv) != len(send) {
		return mpierr.New("reduce", mpierr.Count, mpierr.NoRank, "recv has %d bytes, send has %d", len(recv), len(send))
	}
	return nil
}

// operands returns two buffers for n bytes of elements of any kind.
func (c *Comm) operands(n int) (mine, theirs []byte) {
	padded := (n + 7) &^ 7
	both := c.scratch(2 * padded)
	return both[:n], both[padded : padded+n]
}

// reduce goes up a binomial tree whose root is rank root.
func (c *Comm) reduce(ctx context.Context, send, recv []byte, op datatype.Op, basic datatype.Basic, root int) error {
	mine, theirs := c.operands(len(send))
	copy(mine, send)
	me := (c.rank - root + c.size) % c.size
	for dist := 1; dist < c.size; dist *= 2 {
		if me&dist != 0 {
			return c.giveTo(ctx, "reduce", (me-dist+root)%c.size, 0, mine)
		}
		if me+dist >= c.size {
			continue
		}
		if err := c.takeFrom(ctx, "reduce", (me+dist+root)%c.size, 0, theirs); err != nil {
			return err
		}
		datatype.Combine(op, basic, mine, theirs)
	}
	copy(recv, mine)
	return nil
}

// Allreduce is Reduce to every rank, with the same result, bit by bit, at all of them
// (MPI_Allreduce). It need not be that of Reduce where the order of combination matters.
func Allreduce[T datatype.Element](ctx context.Context, c *Comm, send, recv []T, op datatype.Op) error {
	in, out, basic := bytesOf(send), bytesOf(recv), datatype.BasicOf[T]()
	return c.collective(ctx, "allreduce", 0, func() error { return checkReduce(in, out, op, basic, true) },
		func() error { return c.allreduce(ctx, in, out, op, basic) })
}

// allreduce has two ranks at a time exchange what they have, and both combine it, that of
// the lower rank first, so that both have the same. Ranks from the last power of two on
// take no part, but have others bring theirs in.
func (c *Comm) allreduce(ctx context.Context, send, recv []byte, op datatype.Op, basic datatype.Basic) error {
	const bringIn, bringBack, first = 0, 1, 2 // rounds
	most := 1 << (bits.Len(uint(c.size)) - 1)
	mine, theirs := c.operands(len(send))
	copy(mine, send)
	if c.rank >= most {
		if err := c.giveTo(ctx, "allreduce", c.rank-most, bringIn, mine); err != nil {
			return err
		}
		return c.takeFrom(ctx, "allreduce", c.rank-most, bringBack, recv)
	}
	partner := c.rank + most
	if partner < c.size {
		if err := c.takeFrom(ctx, "allreduce", partner, bringIn, theirs); err != nil {
			return err
		}
		datatype.Combine(op, basic, mine, theirs)
	}
	for round := range bits.Len(uint(most)) - 1 {
		peer := c.rank ^ 1<<round
		if err := c.exchangeWith(ctx, "allreduce", peer, mine, peer, theirs, first+round); err != nil {
			return err
		}
		if peer < c.rank {
			mine, theirs = theirs, mine
		}
		datatype.Combine(op, basic, mine, theirs)
	}
	copy(recv, mine)
	if partner < c.size {
		return c.giveTo(ctx, "allreduce", partner, bringBack, recv)
	}
	return nil
}
