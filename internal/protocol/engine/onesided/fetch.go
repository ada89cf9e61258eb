package onesided

import (
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
)

// fetch gets memory that a peer offers, as from a window.
type fetch struct {
	access  Access
	request Request
	what    any
}

// keptFetches is how many fetches are kept for the next ones.
const keptFetches = 64

// Fetch begins to get what s offers under an id, which is that of no window. Others.Fetched
// tells the end, and says what it was for.
func (x *Operations) Fetch(s *Peer, id uint32, into []byte, what any) {
	var f *fetch
	if n := len(x.fetches); n > 0 {
		f = x.fetches[n-1]
		x.fetches = x.fetches[:n-1]
	} else {
		f = &fetch{}
	}
	f.what, f.request = what, Request{fetch: f}
	f.access.ops, f.access.session, f.access.window = x, s, id
	x.deferCall(&Call{Access: &f.access, Code: wire.CodeGet, Result: into, Request: &f.request})
	s.MarkDirty()
}

// fetched ends a fetch, on which nothing is outstanding any more.
func (x *Operations) fetched(f *fetch) {
	what, s, id, err := f.what, f.access.session, f.access.window, f.request.err
	if len(x.fetches) < keptFetches {
		f.access = Access{queue: f.access.queue}
		f.what, f.request = nil, Request{}
		x.fetches = append(x.fetches, f)
	}
	x.cfg.Others.Fetched(s.Session, id, what, err)
}

// applyFetch answers a get of a part of what this rank offers to the peer. Nothing else can
// be done to an offer, and nothing by others.
func (x *Operations) applyFetch(b *link.Bundle, r *wire.Record) mpierr.Class {
	data, ok := x.cfg.Others.Offered(b.Session, r.Window)
	if !ok {
		return mpierr.Win
	}
	if len(r.Data) != wire.PartLen {
		return mpierr.Intern
	}
	offset, want := wire.Part(r.Data)
	if want > wire.MaxPart {
		return mpierr.Size
	}
	if n := uint64(len(data)); r.Disp > n || uint64(want) > n-r.Disp {
		return mpierr.RMARange
	}
	return x.answerGet(b, r.Token, offset, data[r.Disp:][:want])
}
