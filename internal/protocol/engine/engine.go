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
	"github.com/xdprma/xdprma/internal/protocol/link/reliable"
	"github.com/xdprma/xdprma/window"
)

// Never is the deadline of an engine that waits for nothing.
const Never = link.Never

const millisecond int64 = 1000_000

// Config holds what an engine is told at the start. Times are in nanoseconds, on
// a clock that has passed zero: 0 stands for no time at all.
//
// Of what the link is told, Upper and Stats are the engine's own. RxFrames of 0 are 1024, Parked of 0
// is 2048, and in any case three for each peer; DeadAfter of 0 is 5 s, and Congestion of nil
// reliable.NewAIMD. All functions are called within a call of the engine, and must not call it. Seek
// has Dial called, or Unreachable, when it has ended, and Published, where nothing is known yet, Learned.
type Config struct {
	LinkConfig
	Earlier       uint64                // the incarnation of the last process that had the rank before; 0: there was none
	Windows       *windows.Table        // what this rank exposes
	MaxOps        int                   // operations awaiting an answer, a power of two up to 65536; 0: 8192
	MaxTypeBytes  int                   // bytes of the datatypes that all peers have defined here, as encoded; 0: 64 MiB
	MaxUnexpected int                   // bytes of messages between two ranks without a receive, beyond a small share of each sender's; 0: 16 MiB
	OnConflict    func(window.Conflict) // told of conflicting accesses to windows in checking mode; may be nil
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
	cfg.Upper, cfg.Stats = (*upper)(e), &e.Stats.Stats
	e.Link = link.New(cfg.LinkConfig)
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
