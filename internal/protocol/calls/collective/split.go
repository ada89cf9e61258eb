package collective

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/mpierr"
)

// Undefined is the colour of a rank that gets no communicator.
const Undefined = -32766

// Part is a communicator that is being made.
type Part struct {
	Context uint32
	Group   []int // ranks of the job
}

// Split divides the ranks of a communicator into new ones, by colour: all say what they
// are, and then whether they have theirs. It implements Machine.
type Split struct {
	// Work calls Prepare, unless it is nil, with the part of this rank, before anybody
	// has it. An error of Prepare fails the call at all members of the part, and so does a panic: the
	// machine can be carried on all the same.
	Prepare func(*Part) error

	c     *Comm
	op    string
	color int
	call  *Call // the allgather that goes on
	last  bool  // it is the second
	over  bool
	part  *Part // of this rank, or nil
	fault error // what this rank tells the others
	err   error
}

// member is what a rank says about itself. Each has a context at hand: that of the first
// of a colour is taken.
type member struct {
	color, key int64
	context    uint32 // reserved by the rank; 0: it has none left
	rank       int
}

const memberLen = 20

// Split begins a split, as the call op. id is an ID of this rank that no other
// communicator has. Ranks of one colour, unless it is Undefined, get a communicator,
// ordered by key and then by rank.
func (c *Comm) Split(op string, id uint32, color, key int) *Split {
	b := binary.LittleEndian.AppendUint64(nil, uint64(color))
	b = binary.LittleEndian.AppendUint64(b, uint64(key))
	b = binary.LittleEndian.AppendUint32(b, id)
	return &Split{c: c, op: op, color: color, call: c.AllgatherBytes(op, b)}
}

// Refuse is Call.Refuse.
func (s *Split) Refuse(err error) { s.call.Refuse(err) }

// Result returns the part of this rank, nil if there is none or the call has failed, and
// why it has.
func (s *Split) Result() (*Part, error) {
	if s.err != nil {
		return nil, s.err
	}
	return s.part, nil
}

// Step implements Machine.
func (s *Split) Step(e *engine.Engine) Need {
	if s.over {
		return Done
	}
	if need := s.call.Step(e); need != Done {
		return need
	}
	err := s.call.Err()
	if err == nil && !s.last {
		return Work
	}
	s.over = true
	switch {
	case err != nil && s.part != nil:
		s.renounce(e, err)
	case err == nil && s.fault == nil:
		err = s.faultOfOthers()
	}
	if s.err = err; s.fault != nil {
		s.err = s.fault
	}
	return Done
}

// renounce has this rank not get its part, because of err. It is to blame there if none of
// the part's ranks is.
func (s *Split) renounce(e *engine.Engine, err error) {
	var m *mpierr.Error
	if errors.As(err, &m) && m.Rank >= 0 && !slices.Contains(s.part.Group, s.c.WorldRank(m.Rank)) {
		err = nil
	}
	s.c.Renounce(e, s.part, err)
}

// Work implements Machine.
func (s *Split) Work() {
	if s.call.phase != over {
		s.call.Work()
		return
	}
	defer s.tellFault()
	if s.part, s.fault = s.mine(); s.part != nil && s.Prepare != nil {
		s.fault = errUnprepared
		s.fault = s.Prepare(s.part)
	}
}

var errUnprepared = errors.New("a callback of the program has panicked")

// tellFault begins the second collective, in which all say whether they have their part.
func (s *Split) tellFault() {
	var failed [1]byte
	if s.fault != nil {
		failed[0] = 1
	}
	s.call, s.last = s.c.AllgatherBytes(s.op, failed[:]), true
}

// mine returns the part of this rank, of what all have said.
func (s *Split) mine() (*Part, error) {
	if s.color == Undefined {
		return nil, nil
	}
	var all []member
	for r, b := range s.call.Blocks() {
		m := member{
			color: int64(binary.LittleEndian.Uint64(b)), key: int64(binary.LittleEndian.Uint64(b[8:])),
			context: binary.LittleEndian.Uint32(b[16:memberLen]), rank: r,
		}
		if m.color == int64(s.color) {
			all = append(all, m)
		}
	}
	id := all[0].context
	if !isID(id) {
		return nil, errNoIDs(s.op, all[0].rank)
	}
	slices.SortStableFunc(all, func(a, b member) int { return cmp.Compare(a.key, b.key) })
	p := &Part{Context: id}
	for _, m := range all {
		p.Group = append(p.Group, s.c.WorldRank(m.rank))
	}
	return p, nil
}

// faultOfOthers returns that a member of the part does not get it, or nil.
func (s *Split) faultOfOthers() error {
	if s.part == nil {
		return nil
	}
	blocks := s.call.Blocks()
	for _, world := range s.part.Group {
		if r := s.c.RankOf(world); blocks[r][0] != 0 {
			return mpierr.New(s.op, mpierr.Other, r, "the callback of an attribute failed at this rank")
		}
	}
	return nil
}

// Met implements Machine.
func (s *Split) Met() bool { return s.call.Met() }

// GiveUp implements Machine.
func (s *Split) GiveUp(err error) { s.call.GiveUp(err) }

// Drop implements Machine.
func (s *Split) Drop(e *engine.Engine) {
	s.call.Drop(e)
	s.over = true
}
