package engine

import (
	"github.com/xdprma/xdprma/internal/link"
	"github.com/xdprma/xdprma/internal/message"
)

// Stats counts what an engine did and what it refused. All are totals.
type Stats struct {
	link.Stats
	message.Counts

	BadAnswers   uint64 // answers to no operation of ours
	Deferred     uint64 // calls kept back until a lock was granted or a target had posted
	Refused      uint64 // requests that this rank refused
	Outsiders    uint64 // requests of ranks that are not in the group of the window or communicator
	Types        uint64 // datatypes that peers defined here
	TypesRefused uint64 // pieces of definitions that this rank refused
	Conflicts    uint64 // conflicting accesses found in checking mode
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
	l, m := e.Link.Usage(), e.Exchange.Usage()
	u := Usage{
		Slots: l.Slots, FreeSlots: l.FreeSlots, Parked: l.Parked, LockWaits: l.Kept, Active: l.Active, Sessions: l.Sessions,
		Unexpected: m.Unexpected, Receives: m.Receives, Sends: m.Sends, TypeBytes: e.typeBytes,
	}
	for i := range e.ops {
		if e.ops[i].used {
			u.Operations++
		}
	}
	return u
}
