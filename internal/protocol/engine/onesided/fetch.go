package onesided

import (
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
func (x *Origin) Fetch(s *Peer, id uint32, into []byte, what any) {
	var f *fetch
	if n := len(x.fetches); n > 0 {
		f = x.fetches[n-1]
		x.fetches = x.fetches[:n-1]
	} else {
		f = &fetch{}
	}
	f.what, f.request = what, Request{fetch: f}
	f.access.origin, f.access.session, f.access.window = x, s, id
	x.deferCall(&Call{Access: &f.access, Code: wire.CodeGet, Result: into, Request: &f.request})
	s.MarkDirty()
}

// fetched ends a fetch, on which nothing is outstanding any more.
func (x *Origin) fetched(f *fetch) {
	what, s, id, err := f.what, f.access.session, f.access.window, f.request.err
	if len(x.fetches) < keptFetches {
		f.access = Access{queue: f.access.queue}
		f.what, f.request = nil, Request{}
		x.fetches = append(x.fetches, f)
	}
	x.cfg.Others.Fetched(s.Session, id, what, err)
}
