package windows

import "github.com/xdprma/xdprma/window"

// Members says which ranks of the job may access a window, in which of their lives, and what
// each may do: for each rank one entry. Nil: all may do all.
type Members []member

type member struct {
	life   uint64 // the incarnation, or one of the constants below
	rights window.Rights
}

const (
	outsider = 0
	anyLife  = ^uint64(0)
)

// NewMembers returns the members of a window of a group of ranks of the job, of which each
// has the incarnation in lives and the rights in rights at its place. A nil list stands for
// any of their lives, and for all rights.
func NewMembers(group []int, lives []uint64, rights []window.Rights) Members {
	m := Members{}
	for i, rank := range group {
		for rank >= len(m) {
			m = append(m, member{life: outsider})
		}
		m[rank] = member{anyLife, window.MayAll}
		if lives != nil {
			m[rank].life = lives[i]
		}
		if rights != nil {
			m[rank].rights = rights[i]
		}
	}
	return m
}

// Rights returns what a rank of the job may do with the window, if its incarnation is life, and
// whether it is a member at all. A rank that was started again is another than the one that the
// window was made with.
func (m Members) Rights(rank int, life uint64) (r window.Rights, isMember bool) {
	if m == nil {
		return window.MayAll, true
	}
	if uint(rank) >= uint(len(m)) {
		return 0, false
	}
	if e := &m[rank]; e.life == anyLife || e.life == life && e.life != outsider {
		return e.rights, true
	}
	return 0, false
}

// Bits returns the rights of a rank as the XDP program takes them: without any it needs to
// execute nothing, so that an outsider is a rank without rights.
func (m Members) Bits(rank int, life uint64) uint8 {
	r, _ := m.Rights(rank, life)
	return uint8(r)
}
