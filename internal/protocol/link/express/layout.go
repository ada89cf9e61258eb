// Package express is the tier of small requests that the XDP program of a target
// executes and answers without user space, as user space sees it: the frames, and the
// memory that a rank shares with its program. User space executes no frame. It answers
// again what the program has executed, and takes the others as bundles; internal/lab/twin
// does in Go what the program does. docs/wire.md has the frame, and
// docs/decisions/0023-small-operations-are-executed-in-xdp.md the reasons.
//
// The package is pure. Frames come from peers and are trusted in nothing.
package express

import (
	"reflect"
	"sync/atomic"

	"github.com/xdprma/xdprma/internal/protocol/siphash"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// The limits of the tier, and the sizes of what it keeps in memory.
const (
	MaxPayload = wire.MinPayload // bytes of a frame's payload
	MaxRecords = 8               // in a request
	MaxResults = MaxPayload - wire.HeaderLen
	MaxRank    = 4096

	SlotLen   = 1344 // bytes for each session
	WindowLen = 2112 // bytes for each window
	Windows   = 256  // places for windows that one rank exposes at a time
	Chunks    = 256  // pieces of memory in which windows lie
	PageLen   = 1 << 16
)

// Where a window lies that is not there: no chunk has that index, and none is so long.
const (
	noChunk = 1<<32 - 1
	noBase  = 1 << 47
)

// The rights of a rank to a window are rightsLen bits, which stand in one word with those of
// others.
const (
	rightsLen = 4
	perWord   = 64 / rightsLen
	allRights = 1<<rightsLen - 1
)

// FlagLock is the flag of an exposed window whose lock the program may take.
const FlagLock = 1

// Place is what a target keeps of a session. The C side is struct express_slot.
type Place struct {
	Word        uint64                 `c:"word"`         // exchange<<2 | state
	Session     uint64                 `c:"session"`      // id in requests; 0: not in use
	PeerSession uint64                 `c:"peer_session"` // id in answers
	Rank        uint32                 `c:"rank"`         // of the origin in the job
	PeerPort    uint16                 `c:"peer_port"`    // as in the frame, like the three that follow; 0: they are not checked
	LocalPort   uint16                 `c:"local_port"`
	PeerIP      [2]uint64              `c:"peer_ip"` // of IPv4 the first four bytes, the rest is 0
	LocalIP     [2]uint64              `c:"local_ip"`
	Outcome     uint64                 `c:"outcome"` // see Outcome
	Locked      uint64                 `c:"locked"`  // window id + 1 whose lock an exchange under way holds; 0: none
	Keyed       uint64                 `c:"keyed"`   // 1: frames have codes in place of checksums
	Results     [MaxResults / 8]uint64 `c:"results"`
	Keys        [numKeys]siphash.Key   `c:"keys"`
	_           [7]uint64
}

// Exposed is a window that the program reaches. The C side is struct express_window.
type Exposed struct {
	ID       uint64 `c:"id"`    // window id + 1; 0: none
	Base     uint64 `c:"base"`  // of the window in its chunk
	Size     uint64 `c:"size"`  // of the window
	Chunk    uint32 `c:"chunk"` // index
	Flags    uint32 `c:"flags"`
	Lock     uint64 `c:"lock"`     // where in the chunk of the lock its word is
	Counters uint64 `c:"counters"` // where in that chunk its counters are
	Counts   uint32 `c:"counts"`   // how many counters there are
	Sync     uint32 `c:"sync"`     // index of the chunk of the lock and the counters
	_        uint64
	Rights   [MaxRank / perWord]uint64 `c:"rights"` // of each rank, rightsLen bits
}

// The keys of a slot.
const (
	ofRequests = iota // of the peer
	ofAnswers         // to them
	ofAnswered        // of the answers to requests of this rank
	numKeys
)

// Outcome is what a slot says of its exchange beside the results.
type Outcome struct {
	Length uint32 // of the results
	Fate   uint8
	Done   uint8 // records

	// Awaited: the process is to look for those who wait for a lock or a notification, and may not
	// have yet. Until it has, the program leaves the answer to it.
	Awaited bool
}

// awaitedBit is Awaited in a slot.
const awaitedBit = 1 << 48

// Pack returns o as it stands in a slot.
func (o Outcome) Pack() uint64 {
	v := uint64(o.Length) | uint64(o.Fate)<<32 | uint64(o.Done)<<40
	if o.Awaited {
		v |= awaitedBit
	}
	return v
}

// UnpackOutcome is the inverse of Pack.
func UnpackOutcome(v uint64) Outcome {
	return Outcome{uint32(v), uint8(v >> 32), uint8(v >> 40), v&awaitedBit != 0}
}

// May reports whether a rank has all the rights that a request needs.
func (e *Exposed) May(rank uint32, needs uint8) bool {
	return rank < MaxRank && uint64(needs)&^(atomic.LoadUint64(&e.Rights[rank/perWord])>>(rank%perWord*rightsLen)) == 0
}

// MayAny reports whether a rank has any right at all.
func (e *Exposed) MayAny(rank uint32) bool {
	return rank < MaxRank && atomic.LoadUint64(&e.Rights[rank/perWord])>>(rank%perWord*rightsLen)&allRights != 0
}

// SlotFields lists the fields of a session's slot, for comparison with the C struct.
func SlotFields() []wire.HeaderField { return fields(reflect.TypeFor[Place]()) }

// WindowFields lists the fields of a window, likewise.
func WindowFields() []wire.HeaderField { return fields(reflect.TypeFor[Exposed]()) }

func fields(t reflect.Type) (list []wire.HeaderField) {
	for i := range t.NumField() {
		f := t.Field(i)
		if name := f.Tag.Get("c"); name != "" {
			list = append(list, wire.HeaderField{Name: name, Offset: int(f.Offset), Size: int(f.Type.Size())})
		}
	}
	return list
}
