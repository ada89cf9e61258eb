// Package onesided is one-sided communication: put, get and the accumulates, locks, and
// epochs of all kinds. A rank is at once an Origin and a Target, and has the Locks of its
// windows. A call goes this way:
//
//  1. The Origin's Issue turns it into requests as far as there is room (origin.go, typed.go).
//     One that may not act yet is kept back until its lock is granted or its target has
//     posted (deferred.go). One on memory that this process has acts there (direct.go,
//     shared.go).
//  2. The Target has the requests take effect on its window (target.go, typed_target.go),
//     in the turn that the Locks give them (locks.go; words.go, where a host's ranks share
//     a lock), and answers or refuses them.
//  3. The answers and refusals end the operation (origin.go, ops.go, refusal.go), and the
//     acknowledgement that all has been applied ends the flush (access.go).
//
// Beside this way are start.go and exposure.go (start and complete; post and wait), types.go
// and types_target.go (datatypes that ranks define at each other), express.go (what a
// target's XDP program executes), marks.go and check.go (checking mode), inquiry.go (what an
// origin asks that has waited long), fetch.go (memory that a peer offers and that is in no
// window), and evict.go (memory that goes). Records travel over a link. The package knows
// nothing of messages, and of no rank but those that it has to do with: it tells the layer
// above, through Others, of all records that are for others.
package onesided

import (
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/stats"
	"github.com/xdprma/xdprma/window"
)

const millisecond int64 = 1000_000

// Config holds what the operations are told at the start.
type Config struct {
	Rank, Size   int             // of this process, and of the job
	DeadAfter    int64           // silence after which a peer that owes an answer is dead
	Windows      *windows.Table  // what this rank exposes
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

// Others are the services that share the bundles of the link with the operations. Records are
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

// Operations is one rank's end of all one-sided communication. Its parts leave the fields of
// each other alone. Locks know no other part, an Origin knows them, and a Target knows both.
type Operations struct {
	base
	Locks
	Origin
	Target
}

// New returns operations over l. It panics if cfg contradicts itself, which is the
// caller's bug.
func New(l *link.Link, cfg Config) *Operations {
	if cfg.MaxOps&(cfg.MaxOps-1) != 0 || cfg.MaxOps > maxOps {
		panic("onesided: MaxOps is not a power of two up to 65536")
	}
	x := &Operations{base: base{link: l, cfg: cfg, totals: cfg.Totals}}
	x.Locks = Locks{base: &x.base, byWindow: map[uint32]*lock{}}
	x.Origin = Origin{base: &x.base, locks: &x.Locks, freeOp: link.None, opShare: link.ShareOf(cfg.MaxOps)}
	x.Target = Target{base: &x.base, locks: &x.Locks, origin: &x.Origin}
	return x
}

// Totals counts what the operations did and what they refused.
type Totals = stats.OneSided

// Usage says what the operations hold at this moment.
type Usage struct {
	Operations int // operations that await an answer
	TypeBytes  int // encodings of the datatypes that peers have defined here, which stay
}

// Usage returns what x holds. It looks at every operation.
func (x *Operations) Usage() Usage {
	return Usage{Operations: x.outstanding(), TypeBytes: x.typeBytes}
}
