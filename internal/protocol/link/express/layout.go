// Package express is the tier of small requests that the XDP program of a target
// executes and answers without user space, as user space sees it: the frames, the
// memory that a rank shares with its program, and the program's twin in Go, which
// serves what the program passes on. docs/wire.md has the frame, and
// docs/decisions/0023-small-operations-are-executed-in-xdp.md the reasons.
//
// The package is pure. Frames come from peers and are trusted in nothing.
package express

import (
	"reflect"

	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// The limits of the tier, and the sizes of what it keeps in memory.
const (
	MaxPayload  = wire.MinPayload // bytes of a frame's payload
	MaxRecords  = 8               // in a request
	MaxResults  = MaxPayload - wire.HeaderLen
	MaxElements = 16 // of one accumulate
	MaxRank     = 4096

	SlotLen   = 1280 // bytes for each session
	WindowLen = 576  // bytes for each window
	Windows   = 256  // places for windows that one rank exposes at a time
	Chunks    = 256  // pieces of memory in which windows lie
	PageLen   = 1 << 16
	Program   = 1 // process that the program is in a window.LockWord
)

// farthest is where in a page a put or get of more than 8 bytes may begin.
const farthest = PageLen - MaxResults

// Where a window lies that is not there: no chunk has that index, and none is so long.
const (
	noChunk = 1<<32 - 1
	noBase  = 1 << 47
)

// flagLock is the flag of an exposed window whose lock the program may take.
const flagLock = 1

// place is what a target keeps of a session. The C side is struct express_slot.
type place struct {
	Word        uint64 `c:"word"`         // exchange<<2 | state
	Session     uint64 `c:"session"`      // id in requests; 0: not in use
	PeerSession uint64 `c:"peer_session"` // id in answers
	Rank        uint32 `c:"rank"`         // of the origin in the job
	PeerIP      uint32 `c:"peer_ip"`      // as in the frame, like the three that follow; all 0: not checked
	LocalIP     uint32 `c:"local_ip"`
	PeerPort    uint16 `c:"peer_port"`
	LocalPort   uint16 `c:"local_port"`
	Outcome     uint64 `c:"outcome"` // see outcome
	Locked      uint64 `c:"locked"`  // window id + 1 whose lock an exchange under way holds; 0: none
	_           uint64
	Results     [MaxResults / 8]uint64 `c:"results"`
	_           [8]uint64
}

// exposed is a window that the program reaches. The C side is struct express_window.
type exposed struct {
	ID      uint64 `c:"id"`    // window id + 1; 0: none
	Base    uint64 `c:"base"`  // of the window in its chunk
	Size    uint64 `c:"size"`  // of the window
	Chunk   uint32 `c:"chunk"` // index
	Flags   uint32 `c:"flags"`
	Lock    uint64 `c:"lock"` // where in the chunk its window.LockWord is
	_       [3]uint64
	Members [MaxRank / 64]uint64 `c:"members"` // bit: the rank may access the window
}

// outcome is what a slot says of its exchange beside the results.
type outcome struct {
	length   uint32 // of the results
	fate     uint8
	progress uint8 // records that are done
	by       By    // who finished it
}

func (o outcome) pack() uint64 {
	return uint64(o.length) | uint64(o.fate)<<32 | uint64(o.progress)<<40 | uint64(o.by)<<48
}

func unpackOutcome(v uint64) outcome {
	return outcome{uint32(v), uint8(v >> 32), uint8(v >> 40), By(uint8(v >> 48))}
}

// SlotFields lists the fields of a session's slot, for comparison with the C struct.
func SlotFields() []wire.HeaderField { return fields(reflect.TypeFor[place]()) }

// WindowFields lists the fields of a window, likewise.
func WindowFields() []wire.HeaderField { return fields(reflect.TypeFor[exposed]()) }

func fields(t reflect.Type) (list []wire.HeaderField) {
	for i := range t.NumField() {
		f := t.Field(i)
		if name := f.Tag.Get("c"); name != "" {
			list = append(list, wire.HeaderField{Name: name, Offset: int(f.Offset), Size: int(f.Type.Size())})
		}
	}
	return list
}
