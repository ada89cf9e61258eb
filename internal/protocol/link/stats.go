package link

import (
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/stats"
)

// Stats counts what a link did and what it refused. All are totals.
type Stats struct {
	stats.Link
	Faults [wire.NumFaults]uint64 // malformed frames and records, by fault
}

// Usage says what a link holds at this moment.
type Usage struct {
	Slots, FreeSlots int // transmit slots: all, and those free
	Parked           int // received bundles that wait for their turn or for room
	Kept             int // received bundles that the layer above has taken out of the order
	Active           int // sessions with anything outstanding
	Sessions         int // all sessions, dead ones included
}

// Usage returns what l holds.
func (l *Link) Usage() Usage {
	u := Usage{Slots: len(l.slots), FreeSlots: int(l.freeSlots), Parked: l.parked.n, Kept: l.parked.kept, Sessions: len(l.byID)}
	for _, s := range l.active {
		if !s.Idle() {
			u.Active++
		}
	}
	return u
}
