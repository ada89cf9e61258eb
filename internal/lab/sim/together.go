package sim

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
	"github.com/xdprma/xdprma/mpierr"
)

// Ranks that do nothing but collectives: random ones, on the communicator of all, until
// they are through, or one fails. Then those that are left create a communicator of their
// own, and begin anew.

// assembly is what all ranks together know of that.
type assembly struct {
	entered map[entry]map[int]bool // who has begun a collective
	groups  map[uint32][]int       // of communicators, by context
	blamed  map[int]bool           // ranks at which a call has failed, or that have left
	left    map[int]bool           // ranks that have left

	strangerLeft int64 // when the rank left whose first life nobody had met; see known
}

// entry is a place among the collectives of a communicator.
type entry struct {
	context uint32
	step    int
}

// member is a rank of the assembly.
type member struct {
	*task
	a        *assembly
	world    collective.Comm
	ids      uint64
	contexts []uint32 // that it has used
}

// together is the task of a rank that takes part in collectives.
func (t *task) together() {
	m := &member{task: t, a: &t.w.assembly, world: collective.New(collective.WorldContext, nil, t.l.rank, t.w.plan.ranks)}
	if t.l.incarnation > 1 { // no communicator has it
		stranger := !m.known()
		for r := range t.w.plan.ranks {
			if r != t.l.rank {
				t.l.e.Connect(r)
			}
		}
		if t.w.chance(0.5) { // the others must not wait for it so long
			t.sleep(4 * deadAfter)
		}
		m.leave()
		if stranger {
			m.a.strangerLeft = t.w.now
		}
		return
	}
	m.contexts = []uint32{m.world.Context}
	for c := &m.world; c != nil && !m.collectives(c); c = m.survive() {
		m.doing = fmt.Sprintf("tells that communicator %d is broken", c.Context)
		t.carry(patience{t.w.now}, c.Barrier("barrier"))
		if _, broken := t.l.e.Revoked(c.Context); !broken {
			t.w.failf("rank %d: a collective on communicator %d has failed, and it is not broken", t.l.rank, c.Context)
		}
	}
	m.a.blamed[t.l.rank] = true
	for _, context := range m.contexts {
		t.l.e.FreeContext(context)
		t.l.e.FreeContext(context | collective.SecondContext)
	}
	m.leave()
}

// known reports whether a rank has begun a session with an earlier life of this one. If
// none has, the others take this life for the member of their communicators: it answers
// them, and so they wait for it until it leaves.
func (m *member) known() bool {
	return slices.ContainsFunc(m.w.alive(), func(l *life) bool { return l != m.l && l.e.Session(m.l.rank) != nil })
}

// leave tells the others that this rank has left, and those that meet it afterwards too:
// its process would have ended.
func (m *member) leave() {
	m.doing = "has left"
	m.a.left[m.l.rank] = true
	m.l.e.Bye("")
	m.l.spawn(1, true, func(t *task) {
		for !t.w.net.calm {
			t.sleep(second)
			t.l.e.Bye("")
		}
	})
}

func (m *member) id() uint32 {
	m.ids++
	return collective.ID(m.ids-1, m.l.rank, m.w.plan.ranks)
}

// begins notes that this rank begins a collective.
func (m *member) begins(at entry) {
	if m.a.entered[at] == nil {
		m.a.entered[at] = map[int]bool{}
	}
	m.a.entered[at][m.l.rank] = true
}

// allBegan sees that all members have begun a collective that this rank has ended and that
// no rank ends before.
func (m *member) allBegan(c *collective.Comm, at entry) {
	for r := range c.Size {
		if !m.a.entered[at][c.WorldRank(r)] {
			m.w.failf("rank %d has ended step %d of communicator %d, which rank %d has not begun", m.l.rank, at.step, at.context, c.WorldRank(r))
		}
	}
}

// call carries out a call on c, and reports whether it has succeeded.
func (m *member) call(c *collective.Comm, k collective.Machine, result func() error) bool {
	p, start := m.patience(), m.w.now
	m.carry(p, k)
	if took := m.w.now - max(start, m.w.plan.faultsEnd, m.a.strangerLeft); took > callBound && !m.lasting() {
		m.w.failf("rank %d: %s on communicator %d of %v took %d ms", m.l.rank, m.doing, c.Context, c.Group, took/millisecond)
	}
	err := result()
	if err != nil {
		m.judge(c, p, err)
	}
	return err == nil
}

// callBound is how long a collective may last after the last fault: until a dead member
// has been noticed, by members that may have called late.
const callBound = deadBound + shortFault

// lasting reports whether ranks that live may be given up.
func (m *member) lasting() bool {
	return slices.ContainsFunc(m.w.plan.faults, func(f fault) bool { return f.lasts() && !kinds[f.kind].kills })
}

// judge sees that a call on c was right to fail with err.
func (m *member) judge(c *collective.Comm, p patience, err error) {
	m.a.blamed[m.l.rank] = true // now others may be told that it does not take part any more
	var e *mpierr.Error
	switch {
	case !errors.As(err, &e):
	case e.Class == mpierr.Timeout && p != endless:
		return
	case e.Class == mpierr.ProcFailed && e.Rank >= 0 && e.Rank < c.Size && m.excused(c, c.WorldRank(e.Rank)):
		return
	}
	m.w.failf("rank %d: %s on communicator %d of %v: %v", m.l.rank, m.doing, c.Context, c.Group, err)
}

// excused reports whether others may hold a rank for one that has failed or given up. It
// may have been told so itself, and have ended what others need of it.
func (m *member) excused(c *collective.Comm, rank int) bool {
	there := m.w.nodes[rank]
	if m.a.blamed[rank] || !there.alive || there.incarnation > 1 {
		return true
	}
	if _, broken := there.e.Revoked(c.Context); broken {
		return true
	}
	return m.lasting()
}

// mayLose reports whether this rank may take another for gone: that has failed or left, or
// a fault that lasts has come between two ranks. Once it is over nobody can tell whose
// fault it was. One that lasts for good shows.
func (m *member) mayLose(rank int) bool {
	return m.a.left[rank] || slices.ContainsFunc(m.w.plan.faults, func(f fault) bool {
		return f.lasts() && (f.victims[rank] || f.victims[m.l.rank] || !kinds[f.kind].kills && (f.between() || f.to != forGood))
	})
}

// survive has those that are left create a communicator, as the comment of package comm
// says. It returns nil if this rank is to end.
func (m *member) survive() *collective.Comm {
	for {
		var group []int
		for r := range m.w.plan.ranks {
			if !m.l.e.Gone(r) {
				group = append(group, r)
			} else if r == m.l.rank || !m.mayLose(r) {
				m.w.failf("rank %d takes rank %d for gone, which lives and has no fault", m.l.rank, r)
			}
		}
		m.doing = fmt.Sprintf("creates a communicator of %v", group)
		k := m.world.CreateGroup(group, 0, m.id())
		p := endless
		if m.w.chance(0.2) {
			p = m.patience()
		}
		m.carry(p, k)
		part, err := k.Result()
		if err == nil {
			m.agreed(part, group)
			c := part.Made(m.l.rank, m.w.plan.ranks)
			return &c
		}
		m.judge(&m.world, p, err)
		if !errors.Is(err, mpierr.ProcFailed) {
			return nil
		}
	}
}

// agreed sees that a new communicator has the same members at all of them.
func (m *member) agreed(p *collective.Part, want []int) {
	m.contexts = append(m.contexts, p.Context)
	if !slices.Equal(p.Group, want) {
		m.w.failf("rank %d: a communicator of %v, want %v", m.l.rank, p.Group, want)
	}
	owner := (int(p.Context) - collective.WorldContext - 1) % m.w.plan.ranks
	if m.w.nodes[owner].incarnation > 1 {
		return // it gives the same ids again
	}
	if g := m.a.groups[p.Context]; g != nil && !slices.Equal(g, p.Group) {
		m.w.failf("rank %d: communicator %d has the ranks %v, elsewhere %v", m.l.rank, p.Context, p.Group, g)
	}
	m.a.groups[p.Context] = p.Group
}

// collectives has this rank take part in the collectives of a communicator, which follow from
// the seed, and reports whether all have succeeded.
func (m *member) collectives(c *collective.Comm) bool {
	for n := range m.w.plan.steps {
		if m.w.chance(0.2) {
			m.sleep(m.w.span(0, []int64{2 * millisecond, 2 * millisecond, 500 * millisecond}[m.w.rng.IntN(3)]))
		}
		s := &together{member: m, c: c, at: entry{c.Context, n}, rng: rand.New(rand.NewPCG(m.w.cfg.Seed, uint64(c.Context)<<16|uint64(n)))}
		s.words, s.root = []int{0, 1, 20, 180, 1100, 5000}[s.rng.IntN(6)], s.rng.IntN(c.Size)
		kind := s.rng.IntN(len(calls))
		m.doing = fmt.Sprintf("step %d of communicator %d: %s of %d words, root %d", n, c.Context, calls[kind].name, s.words, s.root)
		m.w.tracef("rank %d: %s", m.l.rank, m.doing)
		m.begins(s.at)
		if !calls[kind].do(s) {
			m.w.tracef("rank %d: that has failed", m.l.rank)
			return false
		}
		if calls[kind].together {
			m.allBegan(c, s.at)
		}
	}
	return true
}

// together is a collective at one rank.
type together struct {
	*member
	c     *collective.Comm
	at    entry
	rng   *rand.Rand // gives the same to all members
	words int
	root  int
}

// calls are the collectives. No rank ends one that is together before all ranks have
// begun it.
var calls = []struct {
	name     string
	do       func(*together) bool
	together bool
}{
	{"barrier", (*together).barrier, true}, {"bcast", (*together).bcast, false}, {"bcast of bytes", (*together).bcastBytes, false},
	{"gather", (*together).gather, false}, {"scatter", (*together).scatter, false}, {"allgather", (*together).allgather, true},
	{"allgather of bytes", (*together).allgatherBytes, true}, {"alltoall", (*together).alltoall, true}, {"reduce", (*together).reduce, false},
	{"allreduce", (*together).allreduce, true}, {"split", (*together).split, true},
}

// carried carries a collective out.
func (s *together) carried(k *collective.Call) bool { return s.call(s.c, k, k.Err) }

// block is what rank from has for rank to.
func (s *together) block(from, to int) []byte {
	var b []byte
	for i := range s.words {
		b = le.AppendUint64(b, uint64(s.c.Context)<<40+uint64(s.at.step)<<32+uint64(from)<<24+uint64(to)<<16+uint64(i))
	}
	return b
}

// blocks are those of all ranks, one after the other.
func (s *together) blocks(of func(rank int) []byte) (all []byte) {
	for r := range s.c.Size {
		all = append(all, of(r)...)
	}
	return all
}

func (s *together) sum() []byte {
	sum := make([]byte, 8*s.words)
	for r := range s.c.Size {
		for i, b := 0, s.block(r, 0); i < len(b); i += 8 {
			le.PutUint64(sum[i:], le.Uint64(sum[i:])+le.Uint64(b[i:]))
		}
	}
	return sum
}

// is sees that the collective, if it has succeeded, has brought the right data.
func (s *together) is(ok bool, got, want []byte) bool {
	if ok && !bytes.Equal(got, want) {
		s.w.failf("rank %d: %s: wrong data", s.l.rank, s.doing)
	}
	return ok
}

func (s *together) barrier() bool { return s.carried(s.c.Barrier("barrier")) }

func (s *together) bcast() bool {
	data, want := make([]byte, 8*s.words), s.block(s.root, 0)
	if s.c.Rank == s.root {
		copy(data, want)
	}
	return s.is(s.carried(s.c.Bcast(data, s.root)), data, want)
}

func (s *together) bcastBytes() bool {
	var data []byte
	if s.c.Rank == s.root {
		data = s.block(s.root, 0)
	}
	k := s.c.BcastBytes(data, s.root)
	return s.carried(k) && s.is(true, k.Data(), s.block(s.root, 0))
}

func (s *together) gather() bool {
	var recv, want []byte
	if s.c.Rank == s.root {
		want = s.blocks(func(r int) []byte { return s.block(r, s.root) })
		recv = make([]byte, len(want))
	}
	return s.is(s.carried(s.c.Gather(s.block(s.c.Rank, s.root), recv, s.root)), recv, want)
}

func (s *together) scatter() bool {
	var send []byte
	if s.c.Rank == s.root {
		send = s.blocks(func(r int) []byte { return s.block(s.root, r) })
	}
	recv := make([]byte, 8*s.words)
	return s.is(s.carried(s.c.Scatter(send, recv, s.root)), recv, s.block(s.root, s.c.Rank))
}

func (s *together) allgather() bool {
	want := s.blocks(func(r int) []byte { return s.block(r, 0) })
	recv := make([]byte, len(want))
	return s.is(s.carried(s.c.Allgather(s.block(s.c.Rank, 0), recv)), recv, want)
}

func (s *together) allgatherBytes() bool {
	k := s.c.AllgatherBytes("allgather", s.block(s.c.Rank, 0))
	return s.carried(k) && s.is(true, slices.Concat(k.Blocks()...), s.blocks(func(r int) []byte { return s.block(r, 0) }))
}

func (s *together) alltoall() bool {
	want := s.blocks(func(r int) []byte { return s.block(r, s.c.Rank) })
	recv := make([]byte, len(want))
	send := s.blocks(func(r int) []byte { return s.block(s.c.Rank, r) })
	return s.is(s.carried(s.c.Alltoall(send, recv)), recv, want)
}

func (s *together) reduce() bool {
	var recv, want []byte
	if s.c.Rank == s.root {
		recv, want = make([]byte, 8*s.words), s.sum()
	}
	return s.is(s.carried(s.c.Reduce(s.block(s.c.Rank, 0), recv, datatype.Sum, datatype.BasicUint64, s.root)), recv, want)
}

func (s *together) allreduce() bool {
	recv := make([]byte, 8*s.words)
	return s.is(s.carried(s.c.Allreduce(s.block(s.c.Rank, 0), recv, datatype.Sum, datatype.BasicUint64)), recv, s.sum())
}

var errCallback = errors.New("a callback fails")

// split makes communicators of colours, unless a callback fails, and uses this rank's.
func (s *together) split() bool {
	colors, keys, bad := make([]int, s.c.Size), make([]int, s.c.Size), -1
	for r := range s.c.Size {
		colors[r], keys[r] = []int{0, 0, 1, collective.Undefined}[s.rng.IntN(4)], s.rng.IntN(3)
	}
	if s.rng.IntN(4) == 0 {
		bad = s.rng.IntN(s.c.Size)
	}
	color := colors[s.c.Rank]
	k := s.c.Split("comm split", s.id(), color, keys[s.c.Rank])
	k.Prepare = func(*collective.Part) error {
		if s.c.Rank == bad {
			return mpierr.New("comm split", mpierr.Other, s.c.Rank, "%w", errCallback)
		}
		return nil
	}
	refused := bad >= 0 && color != collective.Undefined && colors[bad] == color
	ok := s.call(s.c, k, func() error {
		_, err := k.Result()
		if refused && errors.Is(err, mpierr.Other) {
			return nil
		}
		return err
	})
	if !ok || refused || color == collective.Undefined {
		return ok
	}
	var group []int
	for r := range s.c.Size {
		if colors[r] == color {
			group = append(group, r)
		}
	}
	slices.SortStableFunc(group, func(a, b int) int { return cmp.Compare(keys[a], keys[b]) })
	for i, r := range group {
		group[i] = s.c.WorldRank(r)
	}
	part, _ := k.Result()
	s.agreed(part, group)
	d := collective.New(part.Context, part.Group, s.l.rank, s.w.plan.ranks)
	of := &together{member: s.member, c: &d, at: entry{d.Context, 0}, words: 1}
	s.doing += fmt.Sprintf(", and an allreduce on communicator %d", d.Context)
	if s.begins(of.at); !of.allreduce() {
		return false
	}
	s.allBegan(&d, of.at)
	return true
}
