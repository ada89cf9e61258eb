package onesided

import (
	"errors"

	"github.com/xdprma/xdprma/internal/protocol/engine/windows"
	"github.com/xdprma/xdprma/internal/protocol/link"
	"github.com/xdprma/xdprma/internal/protocol/wire"
	"github.com/xdprma/xdprma/mpierr"
)

// A target that does not do what a request asks says so. It ends the operation if an
// answer is due. Otherwise the origin's flush waits until it has heard of all refusals:
// link.Session.Told counts them.

var errRefused = errors.New("refused by the target")

// refusals says what a target has most likely refused for, which the class alone goes
// back to tell.
var refusals = map[mpierr.Class]error{
	mpierr.RMARange:   errors.New("refused by the target: it has no memory attached there"),
	mpierr.Disp:       errors.New("refused by the target: the address there is not aligned to the elements"),
	mpierr.Win:        errors.New("refused by the target: it has freed the window"),
	mpierr.ProcFailed: errors.New("refused by the target: it, or this rank, has left the job"),
	mpierr.Group:      errors.New("refused by the target: this rank is not in the window's group"),
	mpierr.Access:     errors.New("refused by the target: its info key " + windows.KeyAccess + " does not give this rank that right"),
}

// refusalOf returns the refusal of r. It has a token if an answer to r is due.
func refusalOf(r *wire.Record, class mpierr.Class) wire.Refusal {
	f := wire.Refusal{Code: r.Code, Window: r.Window, Disp: r.Disp, Class: uint32(class)}
	if answered(r.Code) {
		f.Token = r.Token
	}
	return f
}

// takeRefusal takes in a record by which the target refuses a request.
func (x *Origin) takeRefusal(s *Peer, r *wire.Record) {
	f, ok := r.Refusal()
	if !ok {
		x.totals.BadAnswers++
		return
	}
	if f.Token == 0 {
		s.refusalsSeen++
	}
	x.refused(s, &f)
}

// refused takes in that the target refuses a request. It ends the operation, if an answer
// was due.
func (x *Origin) refused(s *Peer, f *wire.Refusal) {
	err := refusal(f.Code, refusedClass(f.Class), s.Rank())
	switch i := x.find(s, f.Token); {
	case f.Token == 0:
		x.refusedQuietly(s, f, err)
	case i == link.None:
		x.totals.BadAnswers++
	default:
		if o := &x.ops[i]; o.asksLock() {
			err = x.refuseLock(o.access, err)
		}
		x.finish(i, err)
	}
}

// refusedQuietly is refused for a request that no answer was due for.
func (x *Origin) refusedQuietly(s *Peer, f *wire.Refusal, err *mpierr.Error) {
	if f.Code == wire.CodeType {
		s.typeRefused(f.DefinedType())
	}
	if a := s.access[f.Window]; a != nil {
		a.fail(err)
	} else {
		x.totals.BadAnswers++
	}
}

func refusedClass(class uint32) mpierr.Class {
	c := mpierr.Class(class)
	if c == mpierr.Success || !c.Known() {
		return mpierr.Intern
	}
	return c
}

func refusal(c wire.Code, class mpierr.Class, rank int) *mpierr.Error {
	reason := refusals[class]
	if reason == nil {
		reason = errRefused
	}
	return &mpierr.Error{Op: c.String(), Class: class, Rank: rank, Err: reason}
}
