package program

import (
	"bytes"
	"slices"

	"github.com/xdprma/xdprma/datatype"
)

// Any stands for all ranks and for all tags where a message is received.
const Any = -1

// Talk is one end of a message, or a rank's part of a collective.
type Talk struct {
	Code      CollectiveCode // of a collective
	Reversed  bool           // on the communicator that has the ranks in reverse order
	Peer      int            // destination, source or Null; the root of a collective; ranks of the communicator
	Tag       int
	Requested bool        // the call that has a request
	Op        datatype.Op // of reduce and allreduce, which take elements of Out
	Out, In   Side
	Data      []byte // what Out is in
	Want      []byte // what In is in afterwards
	Got       Status // Recv: what is received
}

// Status tells of a received message; the source is a rank of the communicator.
type Status struct{ Source, Tag, Bytes int }

// CollectiveCode names a collective.
type CollectiveCode uint8

// The collectives.
const (
	Bcast CollectiveCode = iota
	Gather
	Scatter
	Allgather
	Alltoall
	Reduce
	Allreduce
)

// index returns a rank's rank in the communicator.
func (t *Talk) index(ranks, rank int) int {
	if t.Reversed {
		return ranks - 1 - rank
	}
	return rank
}

// into gives t memory for what it receives: packed data, and what was there before.
func (t *Talk) into(packed []byte) {
	t.Want = bytes.Repeat([]byte{pattern}, t.In.Len)
	t.In.scatter(t.Want, t.In.Base, packed)
}

// conversation has all ranks send messages to each other and take part in collectives.
func (g *generator) conversation() {
	for range g.between(1, 4) {
		if g.chance(0.5) {
			g.collective()
		} else {
			g.messages()
		}
	}
}

// elementCount returns how many elements of b travel.
func (g *generator) elementCount(b datatype.Basic) int {
	return g.between(0, []int{0, 8, 200, 1500, 9000, 50_000}[g.IntN(6)]) / b.Size()
}

// message is one that is being made, and the points in time of its ends.
type message struct {
	from, to         int // ranks of the job
	send, recv       Talk
	sentAt, received int
}

// messages has ranks send messages to each other. The ends of some follow on one another
// and block; those of others are anywhere, and requested.
func (g *generator) messages() {
	n := g.between(1, 12)
	var all []*message
	for i := range n {
		m := &message{from: g.IntN(g.p.Ranks), to: g.IntN(g.p.Ranks), sentAt: i, received: i}
		b := basics[g.IntN(len(basics))]
		elements := g.elementCount(b)
		shape := g.shapes(maker{g.Rand, []int{1, 2, 8, 16}[g.IntN(4)]}, b, elements, true)
		g.tags++
		m.send = Talk{Tag: g.tags, Reversed: g.chance(0.4), Requested: m.from == m.to || g.chance(0.6), Out: g.local(shape())}
		m.send.Data = g.random(m.send.Out.Len)
		m.recv = m.send
		in := shape()
		if _, uniform := in.Type.UniformBasic(); uniform && g.chance(0.2) { // room for more
			if in.Count++; in.overlaps() {
				in.Count--
			}
		}
		m.recv.Out, m.recv.Data, m.recv.In = Side{}, nil, g.local(in)
		m.send.Peer, m.recv.Peer = m.send.index(g.p.Ranks, m.to), m.send.index(g.p.Ranks, m.from)
		packed := m.send.Out.gather(m.send.Data, m.send.Out.Base)
		m.recv.Got = Status{m.recv.Peer, m.recv.Tag, len(packed)}
		m.recv.into(packed)
		if m.send.Requested {
			m.sentAt, m.received = g.IntN(n), g.IntN(n)
		}
		all = append(all, m)
	}
	// At each point in time the requested ends come first, which wait for nobody.
	var received []*message
	for at := range n {
		for _, requested := range []bool{true, false} {
			for _, m := range all {
				if m.sentAt == at && m.send.Requested == requested {
					g.talk(m.from, Send, &m.send)
				}
				if m.received == at && m.recv.Requested == requested {
					g.vague(m, all, received)
					g.talk(m.to, Recv, &m.recv)
					received = append(received, m)
				}
			}
		}
	}
	if g.chance(0.2) {
		nobody := Talk{Peer: Null, Requested: g.chance(0.5), Got: Status{Source: Null, Tag: Any}}
		g.talk(g.IntN(g.p.Ranks), []Code{Send, Recv}[g.IntN(2)], &nobody)
	}
	for r := range g.p.Ranks {
		g.await(r, 0.5)
	}
}

// vague has a receive name no source or no tag, where it gets the same message all the
// same: tags are of one message each, and the others of its sender have been received.
func (g *generator) vague(m *message, all, received []*message) {
	switch g.IntN(4) {
	case 0:
		m.recv.Peer = Any
	case 1:
		for _, other := range all {
			if other != m && other.from == m.from && other.to == m.to && other.send.Reversed == m.send.Reversed &&
				before(other, m) && !slices.Contains(received, other) {
				return
			}
		}
		m.recv.Tag = Any
	}
}

// before reports whether a, of one sender, is sent before b.
func before(a, b *message) bool {
	switch {
	case a.sentAt != b.sentAt:
		return a.sentAt < b.sentAt
	case a.send.Requested != b.send.Requested:
		return a.send.Requested
	}
	return a.send.Tag < b.send.Tag
}

func (g *generator) talk(rank int, code Code, t *Talk) {
	if t.Requested {
		g.requests[rank] = append(g.requests[rank], len(g.p.Scripts[rank]))
	}
	g.emit(rank, Step{Code: code, Talk: t})
}

// collective has all ranks take part in a collective.
func (g *generator) collective() {
	n := g.p.Ranks
	code := CollectiveCode(g.IntN(int(Allreduce) + 1))
	b := basics[g.IntN(len(basics))]
	op := datatype.Op(0)
	if code == Reduce || code == Allreduce { // of what gives the same in any order
		b = datatype.Basic(g.between(1, 8))
		for op = datatype.NoOp; op == datatype.NoOp || op == datatype.Replace || op.Check(b) != 0; {
			op = datatype.Op(g.between(1, 14))
		}
	}
	elements := g.elementCount(b)
	shape := g.shapes(maker{g.Rand, []int{1, 2, 8, 16}[g.IntN(4)]}, b, elements, code == Bcast)
	if op != 0 {
		shape = func() Side { return Side{Layout: plain(b), Count: elements} }
	}
	times := func(many bool) Side { // a block, or one for each rank
		s := shape()
		if !many {
			return g.local(s)
		}
		if s.Count *= n; s.overlaps() {
			s = Side{Layout: plain(b), Count: elements * n}
		}
		return g.local(s)
	}
	reversed, root := g.chance(0.4), g.IntN(n)
	talks, packed := make([]*Talk, n), make([][]byte, n) // by rank of the communicator
	for i := range n {
		t := &Talk{Code: code, Reversed: reversed, Peer: root, Op: op}
		if i == root || code == Gather || code == Allgather || code == Alltoall || op != 0 {
			t.Out = times(code == Scatter || code == Alltoall)
			t.Data = g.random(t.Out.Len)
			packed[i] = t.Out.gather(t.Data, t.Out.Base)
		}
		talks[i] = t
	}
	for i, t := range talks {
		if (code == Gather || code == Reduce) && i != root || code == Bcast && i == root {
			continue
		}
		t.In = times(code == Gather || code == Allgather || code == Alltoall)
		t.into(t.result(i, packed))
	}
	for r := range n {
		g.emit(r, Step{Code: Collective, Talk: talks[talks[0].index(n, r)]})
	}
}

// result returns what rank i of the communicator receives.
func (t *Talk) result(i int, packed [][]byte) []byte {
	block := func(of []byte) []byte {
		size := len(of) / len(packed)
		return of[i*size : (i+1)*size]
	}
	switch t.Code {
	case Bcast:
		return packed[t.Peer]
	case Scatter:
		return block(packed[t.Peer])
	case Gather, Allgather:
		return slices.Concat(packed...)
	case Alltoall:
		var blocks []byte
		for _, of := range packed {
			blocks = append(blocks, block(of)...)
		}
		return blocks
	}
	sum := bytes.Clone(packed[0])
	for _, of := range packed[1:] {
		combine(t.Op, &t.Out, sum, 0, of)
	}
	return sum
}
