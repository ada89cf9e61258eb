package engine

import (
	"github.com/xdprma/xdprma/internal/link"
	"github.com/xdprma/xdprma/internal/message"
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/wire"
)

// pull gets a message that a peer has offered, as from a window.
type pull struct {
	access  Access
	request Request
	receive *message.Receive
}

// keptPulls is how many pulls are kept for the next ones.
const keptPulls = 64

// pull is message.Config.Get.
func (e *Engine) pull(from *link.Session, offer uint32, into []byte, r *message.Receive) {
	var p *pull
	if n := len(e.pulls); n > 0 {
		p = e.pulls[n-1]
		e.pulls = e.pulls[:n-1]
	} else {
		p = &pull{}
	}
	p.receive, p.request = r, Request{pull: p}
	p.access.engine, p.access.session, p.access.window = e, sessionOf(from), offer
	e.deferCall(&Call{Access: &p.access, Code: wire.CodeGet, Result: into, Request: &p.request})
	from.MarkDirty()
}

// pulled ends a pull, on which nothing is outstanding any more.
func (e *Engine) pulled(p *pull) {
	r, s, offer, err := p.receive, p.access.session, p.access.window, p.request.err
	if len(e.pulls) < keptPulls {
		p.access = Access{queue: p.access.queue}
		p.receive, p.request = nil, Request{}
		e.pulls = append(e.pulls, p)
	}
	e.Got(r, s.Peer(), offer, err, err != nil && err.Err == errEvicted)
}

// applyPull answers a get of a part of what this rank has offered to the peer. Nothing
// else can be done to an offer, and nothing by others.
func (e *Engine) applyPull(b *link.Bundle, r *wire.Record) mpierr.Class {
	data, ok := e.Offered(sessionOf(b.Session).Peer(), r.Window)
	if !ok || r.Code != wire.CodeGet || r.Flags&wire.FlagTyped != 0 {
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
	return e.answerGet(b, r.Token, offset, data[r.Disp:][:want])
}
