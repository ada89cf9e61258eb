// Package onesided is one-sided communication: put, get and the accumulates, locks, and
// epochs of all kinds. A rank is at once origin and target. A call goes this way:
//
//  1. Issue turns it into requests as far as there is room (origin.go, typed.go). One that
//     may not act yet is kept back until its lock is granted or its target has posted
//     (deferred.go). One on memory that this process has acts there (direct.go, shared.go).
//  2. The target has the requests take effect on its window (target.go, typed_target.go),
//     in the turn that the window's lock gives them (locks.go; words.go, where a host's
//     ranks share it), and answers or refuses them (refusal.go).
//  3. The answers end the operation, and the acknowledgement that all has been applied
//     ends the flush (origin.go, access.go).
//
// Beside this way are exposure.go (post, start, complete and wait), types.go (datatypes that
// ranks define at each other), express.go (what a target's XDP program executes), check.go
// (checking mode), fetch.go (memory that a peer offers and that is in no window), and
// evict.go (memory that goes). Records travel over a link. The package knows nothing of
// messages, and of no rank but those that it has to do with: it tells the layer above,
// through Others, of all records that are for others.
package onesided

import (
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/window"
)

const millisecond int64 = 1000_000

// Config holds what the operations are told at the start.
type Config struct {
	Rank, Size   int             // of this process, and of the job
	DeadAfter    int64           // silence after which a peer that owes an answer is dead
	Windows      *window.Table   // what this rank exposes
	Express      *express.Tables // what the link shares with this rank's XDP program; may be nil
	MaxOps       int             // operations awaiting an answer, a power of two up to 65536
	MaxTypeBytes int             // bytes of the datatypes that all peers have defined here, as encoded
	Others       Others
	Totals       *Totals
	Frames       *link.Stats // of the link; malformed records are counted there
	// Peer returns what the operations keep about the peer of a session.
	Peer func(*link.Session) *Peer
	// OnConflict, if not nil, is told of conflicting accesses to windows in checking mode.
	OnConflict func(window.Conflict)
}

// Others are the rooms that share the bundles of the link with the operations. Records are
// passed by value, so that those of the data path stay on the stack.
type Others interface {
	// Request takes in a request of s that is about no window.
	Request(s *link.Session, r wire.Record) mpierr.Class
	// Response takes in an answer of s to no operation, and reports whether it is theirs.
	Response(s *link.Session, r wire.Record) bool
	// Offered returns the memory that s may get under an id which is that of no window.
	Offered(s *link.Session, id uint32) (data []byte, ok bool)
	// Fetched tells the end of a Fetch from s, and what it was for.
	Fetched(s *link.Session, id uint32, what any, err *mpierr.Error)
}

// Operations is one rank's end of all one-sided communication.
type Operations struct {
	base
	Locks

	own   []*Access // to this rank's own windows
	asked []*Access // whose locks were asked for; perhaps granted since

	deferredPool []*deferred

	opShare       link.Share
	ops           []op
	pending       int32 // of ops
	freeOp        int32
	fetches       []*fetch
	walks         walks   // scratch
	directScratch *Direct // scratch

	typedPool   []*Typed
	scatterPool []*scatter

	typeBytes int // of the datatypes that peers have defined here, as encoded
}

// New returns operations over l. It panics if cfg contradicts itself, which is the
// caller's bug.
func New(l *link.Link, cfg Config) *Operations {
	if cfg.MaxOps&(cfg.MaxOps-1) != 0 || cfg.MaxOps > maxOps {
		panic("onesided: MaxOps is not a power of two up to 65536")
	}
	x := &Operations{
		base:    base{link: l, cfg: cfg, totals: cfg.Totals},
		freeOp:  link.None,
		opShare: link.ShareOf(cfg.MaxOps),
	}
	x.Locks = Locks{base: &x.base, byWindow: map[uint32]*lock{}}
	return x
}

// opRoom reports whether one more operation may await an answer from s.
func (x *Operations) opRoom(s *Peer) bool {
	return x.opShare.Admits(s.Owed(), 1, int32(x.cfg.MaxOps)-x.pending)
}

// Totals counts what the operations did and what they refused.
type Totals struct {
	BadAnswers   uint64 // answers to no operation of ours
	Deferred     uint64 // calls kept back until a lock was granted or a target had posted
	Refused      uint64 // requests that this rank refused
	Outsiders    uint64 // requests of ranks that are not in the group of the window or communicator
	Types        uint64 // datatypes that peers defined here
	TypesRefused uint64 // pieces of definitions that this rank refused
	Conflicts    uint64 // conflicting accesses found in checking mode
}

// Usage says what the operations hold at this moment.
type Usage struct {
	Operations int // operations that await an answer
	TypeBytes  int // encodings of the datatypes that peers have defined here, which stay
}

// Usage returns what x holds. It looks at every operation.
func (x *Operations) Usage() Usage {
	u := Usage{TypeBytes: x.typeBytes}
	for i := range x.ops {
		if x.ops[i].used {
			u.Operations++
		}
	}
	return u
}
