package comm

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/xdprma/xdprma/mpierr"
)

// Undefined is the rank of a process that is not in a group, and the colour of one
// that Split gives no communicator (MPI_UNDEFINED).
const Undefined = -32766

// Group is an ordered set of processes (MPI_Group); rank i of it is the i-th. It
// does not change. The zero value is the empty group.
type Group struct {
	world []int // ranks in the job
	self  int   // this process's rank in the job
}

// Group returns the group of c's processes (MPI_Comm_group).
func (c *Comm) Group() Group {
	g := Group{world: make([]int, c.members.Size), self: c.job.Rank()}
	for i := range g.world {
		g.world[i] = c.WorldRank(i)
	}
	return g
}

// Size returns the number of processes (MPI_Group_size).
func (g Group) Size() int { return len(g.world) }

// Rank returns this process's rank in g, Undefined if it is not in it
// (MPI_Group_rank).
func (g Group) Rank() int { return g.find(g.self) }

func (g Group) find(world int) int {
	if i := slices.Index(g.world, world); i >= 0 {
		return i
	}
	return Undefined
}

// Translate returns the ranks in other of the processes with the given ranks in g,
// Undefined for those that are not in it (MPI_Group_translate_ranks). ProcNull stays
// ProcNull. The error has class ErrRank if one is not in g.
func (g Group) Translate(ranks []int, other Group) ([]int, error) {
	translated := make([]int, len(ranks))
	for i, r := range ranks {
		switch {
		case r == ProcNull:
			translated[i] = ProcNull
		case r < 0 || r >= len(g.world):
			return nil, g.badRank(r)
		default:
			translated[i] = other.find(g.world[r])
		}
	}
	return translated, nil
}

func (g Group) badRank(rank int) error {
	return mpierr.New("group", mpierr.Rank, rank, "the group has %d processes, of ranks from 0, each to be named once", len(g.world))
}

// Incl returns the group of g's processes with the given ranks, in that order
// (MPI_Group_incl). The error has class ErrRank for one that is not in g, or occurs
// twice.
func (g Group) Incl(ranks []int) (Group, error) {
	in := Group{self: g.self}
	for i, r := range ranks {
		if r < 0 || r >= len(g.world) || slices.Contains(ranks[:i], r) {
			return Group{}, g.badRank(r)
		}
		in.world = append(in.world, g.world[r])
	}
	return in, nil
}

// Excl returns the group of g's processes without those of the given ranks
// (MPI_Group_excl). Errors are as for Incl.
func (g Group) Excl(ranks []int) (Group, error) {
	out, err := g.Incl(ranks)
	if err != nil {
		return Group{}, err
	}
	return g.Difference(out), nil
}

// Range is the ranks First, First+Stride, First+2*Stride and so on, as far as Last.
// Stride may be negative.
type Range struct{ First, Last, Stride int }

// RangeIncl is Incl with the ranks of ranges, one after the other
// (MPI_Group_range_incl). The error has class ErrArg for a range whose stride does not
// lead from First to Last.
func (g Group) RangeIncl(ranges []Range) (Group, error) {
	ranks, err := g.expand(ranges)
	if err != nil {
		return Group{}, err
	}
	return g.Incl(ranks)
}

// RangeExcl is Excl with the ranks of ranges (MPI_Group_range_excl). Errors are as
// for RangeIncl.
func (g Group) RangeExcl(ranges []Range) (Group, error) {
	ranks, err := g.expand(ranges)
	if err != nil {
		return Group{}, err
	}
	return g.Excl(ranks)
}

// expand returns the ranks of ranges.
func (g Group) expand(ranges []Range) (ranks []int, err error) {
	for _, p := range ranges {
		if p.Stride == 0 || p.Stride > 0 && p.Last < p.First || p.Stride < 0 && p.Last > p.First {
			return nil, mpierr.New("group", mpierr.Arg, mpierr.NoRank, "a stride of %d does not lead from %d to %d", p.Stride, p.First, p.Last)
		}
		for r := p.First; ; r += p.Stride {
			if r < 0 || r >= len(g.world) {
				return nil, g.badRank(r)
			}
			ranks = append(ranks, r)
			left, step := uint(p.Last)-uint(r), uint(p.Stride) // which cannot overflow
			if p.Stride < 0 {
				left, step = -left, -step
			}
			if left < step {
				break
			}
		}
	}
	return ranks, nil
}

// color returns a colour that only the same group has.
func (g Group) color() int {
	var b []byte
	for _, w := range g.world {
		b = binary.LittleEndian.AppendUint64(b, uint64(w))
	}
	digest := sha256.Sum256(b)
	return int(binary.LittleEndian.Uint64(digest[:]) >> 1)
}

// Union returns the processes of g, and after them those of other that are not in
// g (MPI_Group_union).
func (g Group) Union(other Group) Group {
	return Group{world: append(slices.Clone(g.world), other.Difference(g).world...), self: g.owner(other)}
}

// Intersection returns the processes of g that are in other, in g's order
// (MPI_Group_intersection).
func (g Group) Intersection(other Group) Group {
	return g.filter(func(w int) bool { return slices.Contains(other.world, w) })
}

// Difference returns the processes of g that are not in other, in g's order
// (MPI_Group_difference).
func (g Group) Difference(other Group) Group {
	return g.filter(func(w int) bool { return !slices.Contains(other.world, w) })
}

func (g Group) filter(keep func(world int) bool) Group {
	out := Group{self: g.self}
	for _, w := range g.world {
		if keep(w) {
			out.world = append(out.world, w)
		}
	}
	return out
}

// owner is this process's rank in the job; the empty group does not know it.
func (g Group) owner(other Group) int {
	if len(g.world) == 0 {
		return other.self
	}
	return g.self
}

// Similarity says how two groups, or two communicators, relate.
type Similarity int

// The outcomes of Compare.
const (
	Identical Similarity = iota // the same processes in the same order (MPI_IDENT); of communicators, the same one
	Congruent                   // communicators with identical groups (MPI_CONGRUENT)
	Similar                     // the same processes (MPI_SIMILAR)
	Unequal                     // others (MPI_UNEQUAL)
)

// Compare returns how g and other relate (MPI_Group_compare).
func (g Group) Compare(other Group) Similarity {
	switch {
	case slices.Equal(g.world, other.world):
		return Identical
	case len(g.world) == len(other.world) && g.Difference(other).Size() == 0:
		return Similar
	}
	return Unequal
}
