package engine

import "github.com/xdprma/xdprma/internal/wire"

// Stats counts what an engine did and what it refused. All are totals.
type Stats struct {
	Frames     uint64                 // received, of any kind
	Faults     [wire.NumFaults]uint64 // malformed frames and records, by fault
	Unknown    uint64                 // frames of unknown sessions
	Handshakes uint64                 // handshake frames that were refused
	Resets     uint64                 // peers that declared a session dead

	Bundles        uint64 // received and taken in
	Duplicates     uint64 // bundles received again
	OutOfSpan      uint64 // bundles too far ahead
	Parked         uint64 // bundles that had to wait for order, a lock or room
	ParkingFull    uint64 // bundles left to be sent again for want of room
	BadAcks        uint64 // acknowledgements of what was never sent
	BadAnswers     uint64 // answers to no operation of ours
	Refused        uint64 // requests that this rank refused
	Sent           uint64 // bundles sent for the first time
	Resent         uint64 // bundles sent again
	Acks           uint64 // frames sent only to acknowledge
	Lost           uint64 // bundles found lost by later acknowledgements
	Timeouts       uint64 // retransmission timeouts
	SlotsExhausted uint64 // times that no transmit slot was free
	PeersFailed    uint64
}
