// Package engine is the protocol of one-sided communication as a pure state
// machine: frames, calls and the time come in; frames, changes of memory and the
// next deadline come out. It has no goroutine, lock, clock, system call or source
// of randomness of its own, so the same code runs over AF_XDP, over UDP sockets
// and in a deterministic simulation. Its caller serialises all calls, and sets Now,
// the time, before those that follow.
//
// An Engine puts four packages together. Frames are the business of package link.
// Package onesided is put, get, locks and epochs; package message sends and receives;
// package membership knows the ranks that are gone and the contexts that were revoked.
// They do not know each other: hooks.go passes on events of the link, and calls of one
// that need another. Beside it are session.go (what is kept about another rank), life.go
// (leaving), isolate.go (no way to anybody), evict.go (memory that goes), and stats.go.
package engine

import (
	"github.com/xdprma/xdprma/internal/protocol/engine/membership"
	"github.com/xdprma/xdprma/internal/protocol/engine/message"
	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/link/express"
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/internal/protocol/secure"
	"github.com/xdprma/xdprma/window"
)

// Never is the deadline of an engine that waits for nothing.
const Never = link.Never

const millisecond int64 = 1000_000

// Config holds what an engine is told at the start. Times are in nanoseconds, on
// a clock that has passed zero: 0 stands for no time at all.
type Config struct {
	Rank        int            // of this process in the job
	Size        int            // ranks in the job
	Job         uint64         // names the job in frames, the same at all its ranks
	Incarnation uint64         // larger for each restart of this rank; not 0
	Earlier     uint64         // the incarnation of the last process that had the rank before; 0: there was none
	Rand        func() uint64  // session ids
	Slab        *Slab          // transmit memory of the device
	Windows     *windows.Table // what this rank exposes

	RxFrames      int   // frames that the device can hold for reading; 0: 1024
	Joins         int   // frames that the device sends as one message, by the way of Joined; below 2: it has no such way
	JoinsFrom     int   // bytes that are to leave at once for them to go joined; 0: 12 KiB
	JoinedRoom    int   // bytes of frames that it can hold for reading, if they come that way
	Parked        int   // bundles held while they wait for order or room; 0: 2048; at least three for each peer
	MaxOps        int   // operations awaiting an answer, a power of two up to 65536; 0: 8192
	MaxTypeBytes  int   // bytes of the datatypes that all peers have defined here, as encoded; 0: 64 MiB
	MaxUnexpected int   // bytes of messages between two ranks without a receive, beyond a small share of each sender's; 0: 16 MiB
	DeadAfter     int64 // silence after which a peer that owes an answer is dead; 0: 5 s

	// Congestion returns what decides how much is in flight to one peer; nil: reliable.NewAIMD.
	Congestion func() reliable.Congestion

	// Express, if not nil, is what this rank shares with its XDP program, which executes
	// small requests of peers. Peer, if not nil, says where the frames of a path come from
	// and arrive. AnswersLost, if not nil, is told once of each peer whose program executes
	// requests of this rank and whose answers get lost. It is called as OnConflict is.
	Express     *express.Tables
	Peer        func(PathID) (peer, local express.Endpoint)
	AnswersLost func(rank int)

	// Asked, if not nil, is told whether a process lives that Suspected has had asked. It is called as OnConflict is.
	Asked func(rank int, life uint64, lives bool)

	// Published, if not nil, says whether a rank has made known that it is of an incarnation
	// and at the end of a path, as a hello claims. If that is not known yet, the caller finds
	// out and calls Learned. It is called as OnConflict is. Nil: all hellos are believed.
	Published func(rank int, incarnation uint64, path PathID) Verdict

	// Credentials are what this rank is known by in a job with a key; nil: the job has none. Sessions
	// begin with DialBy then, and handshakes are authenticated. Offload, if not nil, runs work
	// elsewhere and then done as a call of the engine, or returns false: see link.Config.
	Credentials *Credentials
	Offload     func(work, done func()) bool
	Route       func(*secure.Ticket, func(PathID))

	// Seek looks for the way to a rank that the engine has begun a session with, and calls
	// Dial, or Unreachable, when it has ended. It is called as OnConflict is.
	Seek func(rank int)

	// Address, if not nil, tells where a path leads, for errors. Trouble, if not nil, tells what may have
	// kept frames from this rank meanwhile, or nothing: see link.Config.
	Address func(PathID) string
	Trouble func(silent int64) string

	// OnConflict, if not nil, is told of conflicting accesses to windows in checking
	// mode. It is called within a call of the engine, and must not call it.
	OnConflict func(window.Conflict)
}

func (c *Config) setDefaults() {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.RxFrames, 1024)
	def(&c.Parked, 2048)
	c.Parked = max(c.Parked, 3*(c.Size-1))
	def(&c.MaxOps, 8192)
	def(&c.MaxTypeBytes, 64<<20)
	def(&c.MaxUnexpected, 16<<20)
	if c.Congestion == nil {
		c.Congestion = func() reliable.Congestion { return reliable.NewAIMD() }
	}
	if c.DeadAfter == 0 {
		c.DeadAfter = 5000 * millisecond
	}
}

// Engine is one rank's end of the protocol.
type Engine struct {
	*link.Link
	*membership.View
	*message.Messages
	*onesided.Operations
	cfg       Config
	Stats     Stats
	lastWords string // what Bye says
}

// New returns an engine. It panics if cfg contradicts itself, which is the
// caller's bug.
func New(cfg Config) *Engine {
	cfg.setDefaults()
	e := &Engine{cfg: cfg}
	e.Link = link.New(link.Config{
		Rank: cfg.Rank, Size: cfg.Size, Job: cfg.Job, Incarnation: cfg.Incarnation, Rand: cfg.Rand, Slab: cfg.Slab,
		RxFrames: cfg.RxFrames, Joins: cfg.Joins, JoinsFrom: cfg.JoinsFrom, JoinedRoom: cfg.JoinedRoom, Parked: cfg.Parked, DeadAfter: cfg.DeadAfter,
		Congestion: cfg.Congestion, Seek: cfg.Seek, Address: cfg.Address, Trouble: cfg.Trouble, Published: cfg.Published,
		Credentials: cfg.Credentials, Offload: cfg.Offload, Route: cfg.Route, Express: cfg.Express, Peer: cfg.Peer, AnswersLost: cfg.AnswersLost, Asked: cfg.Asked, Upper: (*upper)(e), Stats: &e.Stats.Stats,
	})
	e.View = membership.New(e.Link, membership.Config{
		Rank: cfg.Rank, Size: cfg.Size, Earlier: cfg.Earlier,
		Over:   func(context uint32, failed int) { e.Break(context, failed) },
		Member: func(s *link.Session) *membership.Member { return &sessionOf(s).Member },
	})
	e.Messages = message.New(e.Link, message.Config{
		Rank: cfg.Rank, Size: cfg.Size, DeadAfter: cfg.DeadAfter, MaxUnexpected: cfg.MaxUnexpected,
		Members: e.View, Counts: &e.Stats.Counts, Get: e.fetch,
		Peer: func(s *link.Session) *message.Peer { return &sessionOf(s).mail },
	})
	e.Operations = onesided.New(e.Link, onesided.Config{
		Rank: cfg.Rank, Size: cfg.Size, DeadAfter: cfg.DeadAfter, Windows: cfg.Windows, Express: cfg.Express,
		MaxOps: cfg.MaxOps, MaxTypeBytes: cfg.MaxTypeBytes, OnConflict: cfg.OnConflict,
		Others: (*others)(e), Totals: &e.Stats.Totals, Frames: &e.Stats.Stats,
		Peer: func(s *link.Session) *onesided.Peer { return &sessionOf(s).ops },
	})
	return e
}
