package engine

import (
	"github.com/xdprma/xdprma/internal/protocol/engine/message"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/link"
)

// Stats counts what an engine did and what it refused. All are totals.
type Stats struct {
	link.Stats
	message.Counts
	onesided.Totals
}

// Usage says what an engine holds at this moment. An engine that has nothing
// outstanding has all slots free and all else but Sessions and TypeBytes 0.
type Usage struct {
	Slots, FreeSlots int // transmit slots: all, and those free
	Operations       int // operations that await an answer
	Parked           int // received bundles that wait for their turn or for room
	LockWaits        int // received bundles in the queue of a lock
	Unexpected       int // bytes of messages between two ranks that no receive has matched
	Receives         int // receives and probes without a message
	Sends            int // messages that their receivers do not have
	TypeBytes        int // encodings of the datatypes that peers have defined here, which stay
	Active           int // sessions with anything outstanding
	Sessions         int // all sessions, dead ones included
}

// Usage returns what e holds. It looks at every operation: it is for monitoring
// and tests, not for the data path.
func (e *Engine) Usage() Usage {
	l, m, o := e.Link.Usage(), e.Messages.Usage(), e.Operations.Usage()
	return Usage{
		Slots: l.Slots, FreeSlots: l.FreeSlots, Parked: l.Parked, LockWaits: l.Kept, Active: l.Active, Sessions: l.Sessions,
		Unexpected: m.Unexpected, Receives: m.Receives, Sends: m.Sends, Operations: o.Operations, TypeBytes: o.TypeBytes,
	}
}
