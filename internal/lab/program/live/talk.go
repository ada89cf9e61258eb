package live

import (
	"encoding/binary"

	"github.com/xdprma/xdprma/comm"
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/program"
)

// where returns the communicator of t and a rank of it as the library takes it.
func (m *machine) where(t *program.Talk) (*comm.Comm, int) {
	c, peer := m.comm, t.Peer
	if t.Reversed {
		c = m.reversed
	}
	switch peer {
	case program.Null:
		peer = comm.ProcNull
	case program.Any:
		peer = comm.AnySource
	}
	return c, peer
}

func (m *machine) Send(t *program.Talk, data []byte) (func() error, error) {
	c, dest := m.where(t)
	b := described(&t.Out, data)
	if !t.Requested {
		return func() error { return c.SendBuffer(m.ctx, b, dest, t.Tag) }, nil
	}
	r, err := c.IsendBuffer(m.ctx, b, dest, t.Tag)
	return func() error { return r.Wait(m.ctx) }, err
}

func (m *machine) Recv(t *program.Talk, into []byte) (func() (program.Status, error), error) {
	c, source := m.where(t)
	b, tag := described(&t.In, into), t.Tag
	if tag == program.Any {
		tag = comm.AnyTag
	}
	status := func(s comm.Status, err error) (program.Status, error) {
		if source == comm.ProcNull {
			return t.Got, err
		}
		return program.Status{Source: s.Source, Tag: s.Tag, Bytes: s.Count}, err
	}
	if !t.Requested {
		return func() (program.Status, error) { return status(c.RecvBuffer(m.ctx, b, source, tag)) }, nil
	}
	var s comm.Status
	r, err := c.IrecvBuffer(m.ctx, b, source, tag, &s)
	return func() (program.Status, error) {
		err := r.Wait(m.ctx)
		return status(s, err)
	}, err
}

func (m *machine) Collective(t *program.Talk, data, into []byte) error {
	c, root := m.where(t)
	send, recv := described(&t.Out, data), described(&t.In, into)
	switch t.Code {
	case program.Bcast:
		if c.Rank() == root {
			recv = send
		}
		return c.BcastBuffer(m.ctx, recv, root)
	case program.Gather:
		return c.GatherBuffer(m.ctx, send, recv, root)
	case program.Scatter:
		return c.ScatterBuffer(m.ctx, send, recv, root)
	case program.Allgather:
		return c.AllgatherBuffer(m.ctx, send, recv)
	case program.Alltoall:
		return c.AlltoallBuffer(m.ctx, send, recv)
	}
	return reductions[t.Out.Type.Basic()](m, t, data, into)
}

var reductions = map[datatype.Basic]func(m *machine, t *program.Talk, data, into []byte) error{
	datatype.BasicInt8: reduce[int8], datatype.BasicInt16: reduce[int16], datatype.BasicInt32: reduce[int32], datatype.BasicInt64: reduce[int64],
	datatype.BasicUint8: reduce[uint8], datatype.BasicUint16: reduce[uint16], datatype.BasicUint32: reduce[uint32], datatype.BasicUint64: reduce[uint64],
}

// reduce carries out a reduction, which the library takes slices of elements for.
func reduce[T datatype.Element](m *machine, t *program.Talk, data, into []byte) error {
	c, root := m.where(t)
	send, recv := make([]T, t.Out.Count), make([]T, t.In.Count)
	if _, err := binary.Decode(data[t.Out.Base:t.Out.Base+t.Out.Size()], binary.NativeEndian, send); err != nil {
		return err
	}
	var err error
	if t.Code == program.Allreduce {
		err = comm.Allreduce(m.ctx, c, send, recv, t.Op)
	} else {
		err = comm.Reduce(m.ctx, c, send, recv, t.Op, root)
	}
	if err == nil && t.In.Layout != nil {
		_, err = binary.Encode(into[t.In.Base:], binary.NativeEndian, recv)
	}
	return err
}
