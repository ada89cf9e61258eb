package engine

import (
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/wire"
)

// revocations are the contexts that were ended, with all that uses them: a collective
// has failed at a rank.
type revocations struct {
	failed   map[uint32]int // the failed rank, by context
	contexts []uint32       // oldest first
}

// revoke ends a context, and has all others told. A peer cannot fill memory with
// contexts that do not exist: beyond a limit that no program reaches, revocations
// are ignored, and waiters find out by silence.
func (e *Engine) revoke(context uint32, failed int) {
	in := &e.revoked
	if e.Gone(failed) {
		e.tellGone(failed) // even if the context is over already, because of another
	}
	if in.failed == nil {
		in.failed = map[uint32]int{}
	}
	if _, ok := in.failed[context]; ok || len(in.failed) == 1<<16 {
		return
	}
	in.failed[context] = failed
	in.contexts = append(in.contexts, context)
	e.breakMessages(context, failed)
	e.serveAll()
}

// takeRevoke takes in that a peer has seen a context end.
func (e *Engine) takeRevoke(r *wire.Record) mpierr.Class {
	if r.Disp >= uint64(e.cfg.Size) {
		return mpierr.Rank
	}
	e.revoke(r.Window, int(r.Disp))
	return mpierr.Success
}

// Revoked reports whether a context was revoked, and because of which rank.
func (e *Engine) Revoked(context uint32) (failed int, ok bool) {
	failed, ok = e.revoked.failed[context]
	return failed, ok
}

// Revoke ends a context at this rank, at all ranks that it has a session with or
// will have one with, and so, from one to the next, at all that wait for each other.
func (e *Engine) Revoke(now int64, context uint32, failed int) {
	e.now = now
	e.revoke(context, failed)
}
