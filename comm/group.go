package comm

import (
	"slices"

	"github.com/xdprma/xdprma/internal/mpierr"
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
	g := Group{world: make([]int, c.size), self: c.job.rank}
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
// Undefined for those that are not in it (MPI_Group_translate_ranks). The error has
// class Rank if one is not in g.
func (g Group) Translate(ranks []int, other Group) ([]int, error) {
	in, err := g.Incl(ranks)
	if err != nil {
		return nil, err
	}
	for i, w := range in.world {
		in.world[i] = other.find(w)
	}
	return in.world, nil
}

// Incl returns the group of g's processes with the given ranks, in that order
// (MPI_Group_incl). The error has class Rank for one that is not in g, or occurs
// twice.
func (g Group) Incl(ranks []int) (Group, error) {
	in := Group{self: g.self}
	for i, r := range ranks {
		if r < 0 || r >= len(g.world) || slices.Contains(ranks[:i], r) {
			return Group{}, mpierr.New("group", mpierr.Rank, r, "the group has the ranks 0 to %d, each to be named once", len(g.world)-1)
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

// Similarity says how two groups relate.
type Similarity int

// The outcomes of Compare.
const (
	Identical Similarity = iota // the same processes in the same order (MPI_IDENT)
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
