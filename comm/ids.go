package comm

import (
	"sync/atomic"

	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
)

// ids hands out the ids of communicators, or windows, each once.
type ids struct{ used atomic.Uint64 }

// next returns an id, 0 if they are used up.
func (i *ids) next(j *Job) uint32 { return collective.ID(i.used.Add(1)-1, j.rank, j.size) }

// WindowID returns an id that no other window of the job has, for one whose first rank
// this is; 0 if they are used up.
func (j *Job) WindowID() uint32 { return j.windowIDs.next(j) }

// contextID returns an id that no other communicator of the job has, 0 if they are used up.
func (j *Job) contextID() uint32 { return j.contexts.next(j) }
