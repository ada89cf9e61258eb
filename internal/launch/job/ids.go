package job

import (
	"sync/atomic"

	"github.com/xdprma/xdprma/internal/protocol/calls/collective"
)

// IDs hands out the ids of communicators, or windows, each once.
type IDs struct {
	Used       atomic.Uint64 // how many were handed out
	rank, size int
}

// Next returns an id that no other rank of the job hands out, 0 if they are used up.
func (i *IDs) Next() uint32 { return collective.ID(i.Used.Add(1)-1, i.rank, i.size) }
