package windows

// Members says which ranks of the job may access a window, and in which of their lives:
// for each rank the incarnation, or one of the constants below. Nil: all may.
type Members []uint64

const (
	outsider = 0
	anyLife  = ^uint64(0)
)

// NewMembers returns the members of a window of a group of ranks of the job, of which each
// has the incarnation in lives at its place; nil: in any of its lives.
func NewMembers(group []int, lives []uint64) Members {
	m := Members{}
	for i, rank := range group {
		for rank >= len(m) {
			m = append(m, outsider)
		}
		m[rank] = anyLife
		if lives != nil {
			m[rank] = lives[i]
		}
	}
	return m
}

// Admit reports whether a rank of the job may access the window, if its incarnation is
// life. A rank that was started again is another than the one that the window was made with.
func (m Members) Admit(rank int, life uint64) bool {
	if m == nil {
		return true
	}
	if uint(rank) >= uint(len(m)) {
		return false
	}
	member := m[rank]
	return member == anyLife || member == life && member != outsider
}
