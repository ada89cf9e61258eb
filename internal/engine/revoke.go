package engine

import (
	"slices"

	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/wire"
)

// revocations are the contexts that were ended, with all that uses them: a collective
// has failed at a rank. Only a member of a context's group can end it.
type revocations struct {
	failed   map[uint32]int   // the failed rank, by context
	contexts []uint32         // oldest first
	groups   map[uint32][]int // of the contexts that this rank knows; nil: all ranks of the job
	early    map[int][]early  // by the peer that says so
}

// early is the end of a context that this rank does not know yet.
type early struct {
	context uint32
	failed  int
}

// keptEarly bounds what a peer can have this rank remember of contexts that it does not
// know. Members tell members alone, so nearly all of them are about to be made here.
const keptEarly = 1 << 8

// OpenContext says which ranks of the job may use a context; nil means all. What one of
// them has said before about its end holds from now on.
func (e *Engine) OpenContext(now int64, context uint32, group []int) {
	e.Now = now
	in := &e.revoked
	if _, known := in.groups[context]; known {
		return
	}
	if in.groups == nil {
		in.groups = map[uint32][]int{}
	}
	in.groups[context] = group
	for rank := range e.cfg.Size {
		if len(in.early) == 0 {
			return
		}
		i := slices.IndexFunc(in.early[rank], func(r early) bool { return r.context == context })
		if i < 0 {
			continue
		}
		failed := in.early[rank][i].failed
		if in.early[rank] = slices.Delete(in.early[rank], i, i+1); len(in.early[rank]) == 0 {
			delete(in.early, rank)
		}
		if isMember(group, rank) {
			e.revoke(context, failed)
		}
	}
}

// outside reports whether a context is known, and a rank not among its group.
func (in *revocations) outside(context uint32, rank int) bool {
	return !isMember(in.groups[context], rank)
}

// revoke ends a context, and has the other members told.
func (e *Engine) revoke(context uint32, failed int) {
	in := &e.revoked
	if e.Gone(failed) {
		e.tellGone(failed) // even if the context is over already, because of another
	}
	if in.failed == nil {
		in.failed = map[uint32]int{}
	}
	if _, ok := in.failed[context]; ok {
		return
	}
	in.failed[context] = failed
	in.contexts = append(in.contexts, context)
	e.breakMessages(context, failed)
	e.serveAll()
}

// takeRevoke takes in that a peer has seen a context end.
func (e *Engine) takeRevoke(s *Session, r *wire.Record) mpierr.Class {
	in, v := &e.revoked, r.Revocation()
	if v.Failed >= uint64(e.cfg.Size) {
		return mpierr.Rank
	}
	context, failed := v.Context, int(v.Failed)
	switch _, known := in.groups[context]; {
	case !known:
		e.keepEarly(s.Rank(), early{context, failed})
	case in.outside(context, s.Rank()):
		e.Stats.Outsiders++
		return mpierr.Comm
	default:
		e.revoke(context, failed)
	}
	return mpierr.Success
}

// keepEarly remembers what a peer says of a context that this rank does not know. Beyond
// the bound the oldest is forgotten: who waits then finds out by silence.
func (e *Engine) keepEarly(rank int, r early) {
	in := &e.revoked
	if in.early == nil {
		in.early = map[int][]early{}
	}
	kept := in.early[rank]
	if slices.ContainsFunc(kept, func(k early) bool { return k.context == r.context }) {
		return
	}
	if len(kept) == keptEarly {
		kept = slices.Delete(kept, 0, 1)
	}
	in.early[rank] = append(kept, r)
}

// Revoked reports whether a context was revoked, and because of which rank.
func (e *Engine) Revoked(context uint32) (failed int, ok bool) {
	failed, ok = e.revoked.failed[context]
	return failed, ok
}

// Revoke ends a context at this rank, at all members that it has a session with or
// will have one with, and so, from one to the next, at all that wait for each other.
func (e *Engine) Revoke(now int64, context uint32, failed int) {
	e.Now = now
	e.revoke(context, failed)
}
