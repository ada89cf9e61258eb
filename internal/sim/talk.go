package sim

import (
	"errors"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/engine"
	"github.com/xdprma/xdprma/internal/program"
)

// where returns the context of a message of a generated program, and the rank of the job
// that its peer is.
func (m *machine) where(t *program.Talk) (context uint32, rank int) {
	if !t.Reversed {
		return simJob, t.Peer
	}
	if t.Peer >= 0 {
		return simJob + 1, m.t.w.plan.ranks - 1 - t.Peer
	}
	return simJob + 1, t.Peer
}

func (m *machine) Send(t *program.Talk, data []byte) (func() error, error) {
	context, to := m.where(t)
	if to == program.Null {
		return func() error { return nil }, nil
	}
	packed := make([]byte, t.Out.Size())
	if _, err := datatype.Pack(packed, data, int64(t.Out.Base), t.Out.Type, t.Out.Count, 0); err != nil {
		return nil, err
	}
	p := &engine.Sending{Context: context, Session: m.sessions[to], Tag: t.Tag, Data: packed}
	m.t.l.e.PostSend(m.t.w.now, p)
	return func() error { m.t.await(p.Met); return p.Err() }, nil
}

func (m *machine) Recv(t *program.Talk, into []byte) (func() (program.Status, error), error) {
	context, from := m.where(t)
	if from == program.Null {
		return func() (program.Status, error) { return t.Got, nil }, nil
	}
	r := &engine.Receive{Context: context, Source: from, Tag: t.Tag, Buf: make([]byte, t.In.Size())}
	if t.Tag == program.Any {
		r.Tag = engine.AnyTag
	}
	m.t.l.e.PostReceive(m.t.w.now, r)
	return func() (program.Status, error) {
		m.t.await(r.Met)
		if r.Err() != nil {
			return program.Status{}, r.Err()
		}
		got := program.Status{Source: r.From, Tag: r.Got, Bytes: r.Length}
		if t.Reversed {
			got.Source = m.t.w.plan.ranks - 1 - got.Source
		}
		_, err := datatype.Unpack(into, int64(t.In.Base), t.In.Type, t.In.Count, 0, r.Buf[:r.Length])
		return got, err
	}, nil
}

func (m *machine) Collective(*program.Talk, []byte, []byte) error {
	return errors.New("the simulation has no collectives")
}
