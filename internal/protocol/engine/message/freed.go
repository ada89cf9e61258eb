package message

import (
	"errors"

	"github.com/xdprma/xdprma/mpierr"
)

// freed are the contexts that this rank has freed last. Other ranks may still send on
// them what nobody receives.
type freed struct {
	known map[uint32]bool
	line  []uint32 // of them, a ring
	next  int      // where the oldest is, once the ring is full
}

// keptFreed bounds what is remembered. Messages on contexts that were freed before so
// many others are kept, as are those on contexts that this rank has yet to learn of.
const keptFreed = 1 << 12

var errFreed = errors.New("the communicator has been freed")

// FreeContext ends the receiving of messages on a context, but for receives that are
// posted: other messages, those here and those to come, are dropped, and their senders
// told that they are taken.
func (x *Messages) FreeContext(context uint32) {
	x.cfg.Members.ForgetContext(x.freed.add(context)) // nothing uses that one any more
	for i := 0; i < x.match.arrivals.Len(); {
		if x.match.arrivals.At(i).context == context {
			x.drop(x.match.remove(i))
			continue
		}
		i++
	}
}

// add takes in that a context was freed, and returns the one that is forgotten for it, or 0.
func (f *freed) add(context uint32) (forgotten uint32) {
	switch {
	case f.known[context]:
		return 0
	case f.known == nil:
		f.known = map[uint32]bool{}
	}
	f.known[context] = true
	if len(f.line) < keptFreed {
		f.line = append(f.line, context)
		return 0
	}
	forgotten = f.line[f.next]
	delete(f.known, forgotten)
	f.line[f.next] = context
	f.next = (f.next + 1) % keptFreed
	return forgotten
}

// drop forgets a, a message that nobody will receive.
func (x *Messages) drop(a *arrival) {
	x.counts.Dropped++
	switch s := a.session; {
	case a.own != nil:
		a.own.end(nil)
	case a.offer != 0 && x.left(s) == nil && s.Failure() == nil:
		x.tellTaken(s, a.offer)
	}
	x.paid(a)
}

func freedError() *mpierr.Error {
	return &mpierr.Error{Op: "message", Class: mpierr.Comm, Rank: mpierr.NoRank, Err: errFreed}
}
