package comm

import (
	"context"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
)

// Bcast gives every rank rank root's buf (MPI_Bcast). All name the same root: nobody need be told of
// different ones, see the package's comment.
func Bcast[T datatype.Element](ctx context.Context, c *Comm, buf []T, root int) error {
	data := buffer.Of(buf).Memory()
	return c.collective(ctx, "bcast", func(m *collective.Comm) *collective.Call { return m.Bcast(data, root) })
}

// Gather stores the ranks' send, one after the other by rank, in recv at rank root,
// where it is Size times as long; elsewhere it is not looked at (MPI_Gather).
func Gather[T datatype.Element](ctx context.Context, c *Comm, send, recv []T, root int) error {
	in, out := buffer.Of(send).Memory(), buffer.Of(recv).Memory()
	return c.collective(ctx, "gather", func(m *collective.Comm) *collective.Call { return m.Gather(in, out, root) })
}

// Scatter gives rank i the i-th of Size equal parts of rank root's send, which is
// not looked at elsewhere (MPI_Scatter).
func Scatter[T datatype.Element](ctx context.Context, c *Comm, send, recv []T, root int) error {
	in, out := buffer.Of(send).Memory(), buffer.Of(recv).Memory()
	return c.collective(ctx, "scatter", func(m *collective.Comm) *collective.Call { return m.Scatter(in, out, root) })
}

// Allgather is Gather at every rank (MPI_Allgather).
func Allgather[T datatype.Element](ctx context.Context, c *Comm, send, recv []T) error {
	in, out := buffer.Of(send).Memory(), buffer.Of(recv).Memory()
	return c.collective(ctx, "allgather", func(m *collective.Comm) *collective.Call { return m.Allgather(in, out) })
}

// Alltoall sends the i-th of Size equal parts of send to rank i, which stores it as
// the part of this rank in recv (MPI_Alltoall).
func Alltoall[T datatype.Element](ctx context.Context, c *Comm, send, recv []T) error {
	in, out := buffer.Of(send).Memory(), buffer.Of(recv).Memory()
	return c.collective(ctx, "alltoall", func(m *collective.Comm) *collective.Call { return m.Alltoall(in, out) })
}

// Reduce combines the ranks' send element by element with op, into recv at rank
// root, where it is as long; elsewhere it is not looked at (MPI_Reduce). The order
// of combination depends on the number of ranks alone. Class ErrOp if op is not
// defined for the elements, or is Replace or NoOp, which are for windows.
func Reduce[T datatype.Element](ctx context.Context, c *Comm, send, recv []T, op datatype.Op, root int) error {
	in, out, basic := buffer.Of(send).Memory(), buffer.Of(recv).Memory(), datatype.BasicOf[T]()
	return c.collective(ctx, "reduce", func(m *collective.Comm) *collective.Call { return m.Reduce(in, out, op, basic, root) })
}

// Allreduce is Reduce to every rank, with the same result, bit by bit, at all of them
// (MPI_Allreduce). It need not be that of Reduce where the order of combination matters.
func Allreduce[T datatype.Element](ctx context.Context, c *Comm, send, recv []T, op datatype.Op) error {
	in, out, basic := buffer.Of(send).Memory(), buffer.Of(recv).Memory(), datatype.BasicOf[T]()
	return c.collective(ctx, "allreduce", func(m *collective.Comm) *collective.Call { return m.Allreduce(in, out, op, basic) })
}
