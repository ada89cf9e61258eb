package comm

import (
	"context"

	"github.com/xdprma/xdprma/buffer"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
	"github.com/xdprma/xdprma/mpierr"
)

// Messages and collectives of buffers. The packed data travels: the elements one after
// the other, without the gaps. So sender and receiver may describe the same elements by
// different datatypes, and either by a slice. Only the lengths are compared, since
// messages say nothing of their datatypes; a receive of a message that is shorter leaves
// the rest of its buffer alone. Buffers that are Plain are neither packed nor copied.

// maxPacked is beyond what any memory holds: entries that overlap can ask for it.
const maxPacked = 1 << 40

// pack returns the data of b, the buffer that the call op sends.
func pack(b *buffer.Buffer, op string, rank int) ([]byte, error) {
	if b.Plain() {
		return b.Memory(), nil
	}
	if err := b.Check(op, "send buffer", rank); err != nil {
		return nil, err
	}
	n, typ := b.Entries()
	size := n * typ.Size()
	if size > maxPacked {
		return nil, mpierr.New(op, mpierr.Count, rank, "%d entries of %v have %d bytes", n, typ, size)
	}
	var it datatype.Iter
	it.Reset(typ, n)
	data := make([]byte, size)
	it.Pack(data, b.Memory(), b.Origin())
	return data, nil
}

// A room is what a call receives into, and where that goes then.
type room struct {
	data   []byte
	packed bool // the rest counts
	it     datatype.Iter
	mem    []byte
	origin int64
}

// open makes r that of the call op for b.
func (r *room) open(b *buffer.Buffer, op string, rank int) error {
	if b.Plain() {
		r.data = b.Memory()
		return nil
	}
	if err := b.Check(op, "receive buffer", rank); err != nil {
		return err
	}
	n, typ := b.Entries()
	if typ.OverlapsSelf(n) {
		return mpierr.New(op, mpierr.Type, rank, "%d entries of %v, which are received into, overlap: a byte is written to more than once", n, typ)
	}
	r.data, r.packed, r.mem, r.origin = make([]byte, n*typ.Size()), true, b.Memory(), b.Origin()
	r.it.Reset(typ, n) // now: the datatype may be freed before the message is there
	return nil
}

// fill moves the first n bytes received, or all if there are fewer, to the buffer.
func (r *room) fill(n int) {
	if r.packed {
		r.it.Unpack(r.mem, r.origin, r.data[:min(n, len(r.data))])
	}
}

// SendBuffer is Send of a buffer.
func (c *Comm) SendBuffer(ctx context.Context, buf buffer.Buffer, dest, tag int) (err error) {
	defer c.handle(&err)
	data, err := pack(&buf, "send", dest)
	if err != nil {
		return err
	}
	return c.sendTo(ctx, "send", data, dest, tag)
}

// RecvBuffer is Recv into a buffer. Count of the status is the bytes of packed data.
func (c *Comm) RecvBuffer(ctx context.Context, buf buffer.Buffer, source, tag int) (s Status, err error) {
	defer c.handle(&err)
	var in room
	if err := in.open(&buf, "recv", source); err != nil {
		return Status{}, err
	}
	s, err = c.recvFrom(ctx, "recv", in.data, source, tag, false)
	in.fill(s.Count)
	return s, err
}

// IsendBuffer is Isend of a buffer. Unless that is Plain, it may be changed at once.
func (c *Comm) IsendBuffer(ctx context.Context, buf buffer.Buffer, dest, tag int) (_ *Request, err error) {
	defer c.handle(&err)
	data, err := pack(&buf, "isend", dest)
	if err != nil {
		return nil, err
	}
	return c.isend(data, dest, tag)
}

// IrecvBuffer is Irecv into a buffer, which has the data once the request was found to
// be complete by Wait, Test or the functions on several requests.
func (c *Comm) IrecvBuffer(ctx context.Context, buf buffer.Buffer, source, tag int, status *Status) (_ *Request, err error) {
	defer c.handle(&err)
	var in room
	if err := in.open(&buf, "irecv", source); err != nil {
		return nil, err
	}
	if status == nil {
		status = new(Status)
	}
	r, err := c.irecv(in.data, source, tag, status)
	if err != nil {
		return nil, err
	}
	finish := r.finish
	r.finish = func() error {
		err := finish()
		in.fill(status.Count)
		return err
	}
	return r, nil
}

// SendrecvBuffer is Sendrecv of buffers.
func (c *Comm) SendrecvBuffer(ctx context.Context, send buffer.Buffer, dest, sendTag int, recv buffer.Buffer, source, recvTag int) (s Status, err error) {
	defer c.handle(&err)
	data, err := pack(&send, "sendrecv", dest)
	if err != nil {
		return Status{}, err
	}
	var in room
	if err := in.open(&recv, "sendrecv", source); err != nil {
		return Status{}, err
	}
	s, err = c.sendrecv(ctx, data, dest, sendTag, in.data, source, recvTag)
	in.fill(s.Count)
	return s, err
}

// packedInTurn carries out what begin begins with packed data, that of send and memory for
// recv's, as c's next collective. root is 0 where there is none.
func (c *Comm) packedInTurn(ctx context.Context, op string, root int, send, recv buffer.Buffer, begin func(m *collective.Comm, send, recv []byte) *collective.Call) (err error) {
	defer c.handle(&err)
	var in room
	return c.inTurn(ctx, op, func(m *collective.Comm) *collective.Call {
		data, err := pack(&send, op, mpierr.NoRank)
		if err == nil {
			err = in.open(&recv, op, mpierr.NoRank)
		}
		if err != nil {
			return m.Refused(op, root, err)
		}
		return begin(m, data, in.data)
	}, func(*collective.Call) { in.fill(len(in.data)) })
}

// BcastBuffer is Bcast of a buffer. In this and the other collectives, ranks may use
// datatypes of their own, whose data is of the same length. As with slices, a rank's
// wrong buffer breaks the communicator.
func (c *Comm) BcastBuffer(ctx context.Context, buf buffer.Buffer, root int) error {
	send, recv := buffer.Buffer{}, buf
	if c.members.Rank == root {
		send, recv = buf, buffer.Buffer{}
	}
	return c.packedInTurn(ctx, "bcast", root, send, recv, func(m *collective.Comm, send, recv []byte) *collective.Call {
		if c.members.Rank == root {
			recv = send
		}
		return m.Bcast(recv, root)
	})
}

// GatherBuffer is Gather of buffers: of the entries of recv at rank root, the first of
// Size equal parts is rank 0's, and so on.
func (c *Comm) GatherBuffer(ctx context.Context, send, recv buffer.Buffer, root int) error {
	if c.members.Rank != root {
		recv = buffer.Buffer{}
	}
	return c.packedInTurn(ctx, "gather", root, send, recv,
		func(m *collective.Comm, send, recv []byte) *collective.Call { return m.Gather(send, recv, root) })
}

// ScatterBuffer is Scatter of buffers.
func (c *Comm) ScatterBuffer(ctx context.Context, send, recv buffer.Buffer, root int) error {
	if c.members.Rank != root {
		send = buffer.Buffer{}
	}
	return c.packedInTurn(ctx, "scatter", root, send, recv,
		func(m *collective.Comm, send, recv []byte) *collective.Call { return m.Scatter(send, recv, root) })
}

// AllgatherBuffer is Allgather of buffers.
func (c *Comm) AllgatherBuffer(ctx context.Context, send, recv buffer.Buffer) error {
	return c.packedInTurn(ctx, "allgather", 0, send, recv, (*collective.Comm).Allgather)
}

// AlltoallBuffer is Alltoall of buffers.
func (c *Comm) AlltoallBuffer(ctx context.Context, send, recv buffer.Buffer) error {
	return c.packedInTurn(ctx, "alltoall", 0, send, recv, (*collective.Comm).Alltoall)
}
