package sim

import (
	"errors"
	"slices"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/lab/program"
	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/mpierr"
)

// communicators makes those of a generated program.
func (m *machine) communicators() {
	ranks, self := m.t.w.plan.ranks, m.t.l.rank
	reversed := make([]int, ranks)
	for i := range reversed {
		reversed[i] = ranks - 1 - i
	}
	m.comms = [2]collective.Comm{collective.New(simJob, nil, self, ranks), collective.New(simJob+1, reversed, self, ranks)}
}

// of returns the communicator of a message or collective of a generated program.
func (m *machine) of(t *program.Talk) *collective.Comm {
	if t.Reversed {
		return &m.comms[1]
	}
	return &m.comms[0]
}

// peer returns the rank of the job that t is about, or what stands for none or any.
func (m *machine) peer(t *program.Talk) int {
	if t.Peer < 0 {
		return t.Peer
	}
	return m.of(t).WorldRank(t.Peer)
}

func (m *machine) Send(t *program.Talk, data []byte) (func() error, error) {
	to := m.peer(t)
	if to == program.Null {
		return func() error { return nil }, nil
	}
	packed, err := packed(&t.Out, data)
	if err != nil {
		return nil, err
	}
	p := &engine.Sending{Context: m.of(t).Context, To: m.sessions[to].Peer(), Tag: t.Tag, Data: packed}
	m.t.l.e.PostSend(p)
	return func() error { m.t.await(p.Met); return p.Err() }, nil
}

func (m *machine) Recv(t *program.Talk, into []byte) (func() (program.Status, error), error) {
	from := m.peer(t)
	if from == program.Null {
		return func() (program.Status, error) { return t.Got, nil }, nil
	}
	r := &engine.Receive{Context: m.of(t).Context, Source: from, Tag: t.Tag, Buffer: make([]byte, t.In.Size())}
	if t.Tag == program.Any {
		r.Tag = engine.AnyTag
	}
	m.t.l.e.PostReceive(r)
	return func() (program.Status, error) {
		m.t.await(r.Met)
		if r.Err() != nil {
			return program.Status{}, r.Err()
		}
		got := program.Status{Source: m.of(t).RankOf(r.From), Tag: r.Got, Bytes: r.Length}
		return got, unpack(&t.In, into, r.Buffer[:r.Length])
	}, nil
}

// packed returns the data of a side.
func packed(s *program.Side, mem []byte) ([]byte, error) {
	if s.Layout == nil {
		return nil, nil
	}
	data := make([]byte, s.Size())
	_, err := datatype.Pack(data, mem, int64(s.Base), s.Type, s.Count, 0)
	return data, err
}

// unpack stores data in the memory of a side.
func unpack(s *program.Side, mem, data []byte) error {
	if s.Layout == nil {
		return nil
	}
	_, err := datatype.Unpack(mem, int64(s.Base), s.Type, s.Count, 0, data)
	return err
}

func (m *machine) Barrier() error { return m.collective(m.comms[0].Barrier("barrier")) }

// collective carries out a collective whose members live and do not give it up.
func (m *machine) collective(k *collective.Call) error {
	m.t.carry(endless, k)
	return k.Err()
}

func (m *machine) Collective(t *program.Talk, data, into []byte) error {
	c := m.of(t)
	send, err := packed(&t.Out, data)
	if err != nil {
		return err
	}
	var recv []byte
	if t.In.Layout != nil {
		recv = make([]byte, t.In.Size())
	}
	var k *collective.Call
	switch t.Code {
	case program.Bcast:
		if c.Rank == t.Peer {
			recv = slices.Clone(send)
		}
		k = c.Bcast(recv, t.Peer)
	case program.Gather:
		k = c.Gather(send, recv, t.Peer)
	case program.Scatter:
		k = c.Scatter(send, recv, t.Peer)
	case program.Allgather:
		k = c.Allgather(send, recv)
	case program.Alltoall:
		k = c.Alltoall(send, recv)
	case program.Reduce:
		k = c.Reduce(send, recv, t.Op, t.Out.Type.Basic(), t.Peer)
	case program.Allreduce:
		k = c.Allreduce(send, recv, t.Op, t.Out.Type.Basic())
	}
	if err := m.collective(k); err != nil {
		return err
	}
	return unpack(&t.In, into, recv)
}

// errPatience is what calls are given up with.
var errPatience = &mpierr.Error{Class: mpierr.Timeout, Rank: mpierr.NoRank, Err: errors.New("its patience has ended")}

// carry steps a machine until it is over, as package comm does. p may end it.
func (t *task) carry(p patience, m collective.Machine) {
	if t.w.now >= p.until {
		m.GiveUp(errPatience)
	}
	for {
		switch m.Step(t.l.e) {
		case collective.Done:
			return
		case collective.Work:
			m.Work()
		case collective.Wait:
			if !t.awaitWith(p, m.Met) {
				m.GiveUp(errPatience)
			}
		case collective.Last:
			if t.awaitWith(p, m.Met) {
				return
			}
			m.GiveUp(errPatience)
		case collective.Finish:
			t.await(m.Met)
		}
	}
}
