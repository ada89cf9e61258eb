package link

import "github.com/xdprma/xdprma/internal/protocol/wire"

// Stats counts what a link did and what it refused. All are totals.
type Stats struct {
	Frames     uint64                 // received, of any kind
	Faults     [wire.NumFaults]uint64 // malformed frames and records, by fault
	Unknown    uint64                 // frames of unknown sessions
	Handshakes uint64                 // handshake frames that were refused
	Refuted    uint64                 // of them, hellos that are not what their rank has published
	Unverified uint64                 // hellos that came before it was known what their rank has published
	Resets     uint64                 // peers that declared a session dead

	Bundles        uint64 // received and taken in
	Duplicates     uint64 // bundles received again
	OutOfSpan      uint64 // bundles too far ahead
	Parked         uint64 // bundles that had to wait for order or room
	ParkingFull    uint64 // bundles left to be sent again for want of room
	BadAcks        uint64 // acknowledgements of what was never sent
	Sent           uint64 // bundles sent for the first time
	Joined         uint64 // of them, by the way of joined frames
	Resent         uint64 // bundles sent again
	Acks           uint64 // frames sent only to acknowledge
	Lost           uint64 // bundles found lost by later acknowledgements
	Probes         uint64 // bundles sent again early, in case the last ones were lost
	Timeouts       uint64 // retransmission timeouts
	SlotsExhausted uint64 // times that no transmit slot was free
	PeersFailed    uint64

	Exchanges   uint64 // bundles sent as express frames
	Repeated    uint64 // express frames sent again
	Executed    uint64 // exchanges that the peer executed at once
	Taken       uint64 // exchanges that the peer took as bundles
	LateAnswers uint64 // answers to exchanges that were over
	AnswersLost uint64 // times that exchanges with a peer were given up because its answers got lost

	ExpressTaken    uint64 // express frames of peers that became bundles
	ExpressAnswered uint64 // express frames of peers that user space answered
	ExpressDropped  uint64 // express frames of peers left to be sent again
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
