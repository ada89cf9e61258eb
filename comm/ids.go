package comm

import (
	"sync/atomic"

	"github.com/xdprma/xdprma/internal/mpierr"
)

// ids hands out the ids of communicators, or windows. A rank hands out those that are
// its own modulo the size of the job, each once: so all are unique in the job without
// asking anybody, and what is said about one concerns nothing else.
type ids struct{ used atomic.Uint64 }

// next returns an id beyond that of the world communicator and below limit, 0 if they
// are used up.
func (i *ids) next(rank, size int, limit uint64) uint32 {
	id := worldContext + 1 + (i.used.Add(1)-1)*uint64(size) + uint64(rank)
	if id >= limit {
		return 0
	}
	return uint32(id)
}

// WindowID returns an id that no other window of the job has, for one whose first rank
// this is; 0 if they are used up.
func (j *Job) WindowID() uint32 { return j.windowIDs.next(j.rank, j.size, secondContext) }

// contextID returns an id that no other communicator of the job has, 0 if they are used up.
func (j *Job) contextID() uint32 { return j.contexts.next(j.rank, j.size, secondContext) }

// isContextID reports whether contextID can have returned id at some rank.
func isContextID(id uint32) bool { return id > worldContext && id < secondContext }

// errNoContexts is that the rank which a communicator's id is asked of has none left.
func errNoContexts(op string, rank int) error {
	return mpierr.New(op, mpierr.NoMem, rank, "the message contexts of communicators are used up: make fewer anew")
}
