package membership

import (
	"slices"

	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
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

// OpenContext says which ranks of the job may use a context; nil means all. If one of
// them has said before that the context is over, this holds from now on.
func (v *View) OpenContext(context uint32, group []int) {
	in := &v.revoked
	if _, known := in.groups[context]; known {
		return
	}
	if in.groups == nil {
		in.groups = map[uint32][]int{}
	}
	in.groups[context] = group
	for rank := range v.cfg.Size {
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
		if isMember(group, rank) && isMember(group, failed) {
			v.blame(context, failed, rank)
		}
	}
}

// Outside reports whether a context is known, and a rank not among its group.
func (v *View) Outside(context uint32, rank int) bool {
	return !isMember(v.revoked.groups[context], rank)
}

// ForgetContext forgets the group of a context that nothing uses any more.
func (v *View) ForgetContext(context uint32) { delete(v.revoked.groups, context) }

// revoke ends a context, and has the other members told.
func (v *View) revoke(context uint32, failed int) {
	in := &v.revoked
	if v.Gone(failed) {
		v.TellGone(failed) // even if the context is over already, because of another
	}
	if in.failed == nil {
		in.failed = map[uint32]int{}
	}
	if _, ok := in.failed[context]; ok {
		return
	}
	in.failed[context] = failed
	in.contexts = append(in.contexts, context)
	v.cfg.Over(context, failed)
	v.serveAll()
}

// blame ends a context because of a rank, as another says, and listens for that rank: it has
// failed, or has given up.
func (v *View) blame(context uint32, failed, by int) {
	v.revoke(context, failed)
	question := wire.Gone{By: uint32(by), Rank: uint32(failed)}
	if by == failed {
		question.Rank = uint32(v.cfg.Rank)
	}
	v.hear(failed, question)
}

// TakeRevoke takes in that a peer has seen a context end. The class is Comm if the peer is
// not in the group of the context, and Rank if the rank to blame is not.
func (v *View) TakeRevoke(s *link.Session, r *wire.Record) mpierr.Class {
	in, end := &v.revoked, r.Revocation()
	if end.Failed >= uint64(v.cfg.Size) {
		return mpierr.Rank
	}
	context, failed := end.Context, int(end.Failed)
	switch _, known := in.groups[context]; {
	case !known:
		v.keepEarly(s.Rank(), early{context, failed})
	case v.Outside(context, s.Rank()):
		return mpierr.Comm
	case v.Outside(context, failed):
		return mpierr.Rank
	default:
		v.blame(context, failed, s.Rank())
	}
	return mpierr.Success
}

// keepEarly remembers what a peer says of a context that this rank does not know. Beyond
// the bound the oldest is forgotten: who waits then finds out by silence.
func (v *View) keepEarly(rank int, r early) {
	in := &v.revoked
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
func (v *View) Revoked(context uint32) (failed int, ok bool) {
	failed, ok = v.revoked.failed[context]
	return failed, ok
}

// Revoke ends a context at this rank, at all members that it has a session with or
// will have one with, and so, from one to the next, at all that wait for each other.
func (v *View) Revoke(context uint32, failed int) {
	v.revoke(context, failed)
}
