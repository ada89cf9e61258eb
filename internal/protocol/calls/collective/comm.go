package collective

import (
	"errors"
	"slices"

	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/mpierr"
)

// Message contexts: the world's is 1, those of other communicators follow, and those of
// windows have the top bit set. Each has a second one, with the next bit, for calls that
// have to work even if a collective on the first was given up. A window ends on its
// second context, and a group creates a communicator on that of its parent.
const (
	WorldContext  = 1
	SecondContext = 1 << 30
	WindowContext = 1 << 31
)

// ID returns the id with number n, from 0, of the ids that a rank of a job hands out, or
// 0 if there are not so many. Ranks hand out different ids, so an id is unique in the
// job without asking anybody, and never stands for another communicator.
func ID(n uint64, rank, size int) uint32 {
	id := WorldContext + 1 + n*uint64(size) + uint64(rank)
	if id >= SecondContext {
		return 0
	}
	return uint32(id)
}

// isID reports whether ID can have returned id at some rank.
func isID(id uint32) bool { return id > WorldContext && id < SecondContext }

// errNoIDs is the error of a rank that was asked for the id of a new communicator and has none left.
func errNoIDs(op string, rank int) error {
	return mpierr.New(op, mpierr.NoMem, rank, "it has used up its ids for communicators: keep communicators, instead of making new ones")
}

// Comm is a communicator as one of its members sees it. It carries out one collective at
// a time.
type Comm struct {
	Context uint32
	Group   []int // ranks in the job, nil for all of them
	Rank    int
	Size    int
	Title   func() string // of the window whose calls it serves; nil: it is a program's. Called with the engine's lock held

	greeted bool // all members have been called; see Greet

	turn  uint32   // collectives begun, so that messages of two cannot be mixed up
	spare []uint64 // memory for collectives; see scratch
	call  Call     // the collective that goes on
}

// New returns the communicator of a group of a job's ranks, nil for all of them, as the
// rank self of the job sees it.
func New(context uint32, group []int, self, jobSize int) Comm {
	c := Comm{Context: context, Group: group, Rank: self, Size: jobSize}
	if group != nil {
		c.Size, c.Rank = len(group), c.RankOf(self)
	}
	return c
}

// WorldRank returns the rank in the job of a rank of the communicator.
func (c *Comm) WorldRank(rank int) int {
	if c.Group == nil {
		return rank
	}
	return c.Group[rank]
}

// RankOf returns the rank in the communicator of a rank in the job, mpierr.NoRank if it is
// none of its.
func (c *Comm) RankOf(world int) int {
	if c.Group == nil {
		return world
	}
	return slices.Index(c.Group, world)
}

// Greet begins a session with each member, so that the failure of one that this rank has
// never heard of is noticed by who waits for messages of any rank.
func (c *Comm) Greet(e *engine.Engine) {
	for rank := 0; rank < c.Size && !c.greeted; rank++ {
		e.Connect(c.WorldRank(rank))
	}
	c.greeted = true
}

// Named returns err, which comes from the job, as the error of call op on c. Where it
// concerns no rank itself, it is at the given one, which the call waits for.
func (c *Comm) Named(op string, rank int, err error) *mpierr.Error {
	e := mpierr.Named(op, mpierr.NoRank, err)
	if e.Rank != mpierr.NoRank {
		e.Rank = c.RankOf(e.Rank)
	} else if e.Class != mpierr.Closed {
		e.Rank = rank
	}
	return e
}

// Break ends the communicator with the given context, which c's members make or have: its
// collectives fail at every member, and so do messages that are not there yet. This rank
// has failed with err, of a call on c.
func (c *Comm) Break(e *engine.Engine, context uint32, err error) {
	culprit := c.WorldRank(c.Rank)
	var m *mpierr.Error
	if errors.As(err, &m) && m.Rank >= 0 && m.Rank < c.Size { // a root may be no rank
		culprit = c.WorldRank(m.Rank)
	}
	e.Revoke(context, culprit)
	e.Tick()
}

// Renounce breaks the communicator p, as Break does, where this rank was to have it and
// does not get it: others may have it, and would wait for this rank. Messages that they
// have sent on it are dropped, for nobody will receive them.
func (c *Comm) Renounce(e *engine.Engine, p *Part, err error) {
	e.OpenContext(p.Context, p.Group)
	e.FreeContext(p.Context)
	e.FreeContext(p.Context | SecondContext)
	c.Break(e, p.Context, err)
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
