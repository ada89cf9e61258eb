package onesided

import (
	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link"
)

// base is what the parts of the operations share: it knows none of them.
type base struct {
	link   *link.Link
	cfg    Config
	totals *Totals
	turn   uint64 // bundles of requests, and local calls, that have acted
}

// Windows returns the table of the windows that this rank exposes.
func (x *base) Windows() *windows.Table { return x.cfg.Windows }

// Time returns the time of this turn, as the link has it.
func (x *base) Time() int64 { return x.link.Now }

// Connect returns what the operations keep about a rank. If there is no session with it yet,
// it begins one. It does not wait.
func (x *base) Connect(rank int) *Peer { return x.cfg.Peer(x.link.Connect(rank)) }

// peer returns what the operations keep about a rank, or nil if there is no session with it.
func (x *base) peer(rank int) *Peer {
	if s := x.link.Session(rank); s != nil {
		return x.cfg.Peer(s)
	}
	return nil
}
