package collective

import (
	"errors"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/protocol/engine"
	"github.com/xdprma/xdprma/mpierr"
)

// Call is a collective at one rank, from its begin to its end. It is a sequence of
// transfers: in each the rank sends a message to one other, or receives one, or both at
// once. It implements Machine.
type Call struct {
	c    *Comm
	op   string
	next func(*Call) bool // takes in what has come and describes the transfer that follows; false: none does

	phase    phase
	steps    int      // calls of next
	tag      int      // of the first round
	wrong    error    // with what this rank was given
	transfer Transfer // that goes on, or is given up
	shorter  bool     // what comes may be shorter than its memory
	err      error

	// The state of the algorithms, which say what each field means.
	root, dist   int
	send, recv   []byte
	mine, theirs []byte
	operator     datatype.Op
	basic        datatype.Basic
	cast         cast
}

type phase uint8

const (
	begun        phase = iota
	working            // next is to be called
	transferring       // the transfer is described, or goes on
	ending             // next has nothing more
	over
)

var errBroken = errors.New("the communicator is broken: this member has failed, or given up a collective")

// begin makes c's call that of op. Of root it checks that it is a rank.
func (c *Comm) begin(op string, root int, next func(*Call) bool) *Call {
	k := &c.call
	*k = Call{c: c, op: op, next: next, root: root, tag: engine.MaxTag + 1 + int(c.turn<<8)&engine.MaxTag}
	c.turn++
	if root < 0 || root >= c.Size {
		k.Refuse(mpierr.New(op, mpierr.Rank, root, "the communicator has %d ranks", c.Size))
	}
	return k
}

// Refused begins a call that fails with err: its arguments cannot even be looked at.
func (c *Comm) Refused(op string, root int, err error) *Call {
	k := c.begin(op, root, nil)
	k.Refuse(err)
	return k
}

// Refuse has the call, which has just begun, fail with err: something is wrong with its
// arguments. The first such error counts.
func (k *Call) Refuse(err error) {
	if k.wrong == nil {
		k.wrong = err
	}
}

// Err returns what the call, which is over, has failed with, or nil.
func (k *Call) Err() error { return k.err }

// swap describes the next transfer: round tells messages of the call between the same two
// ranks apart.
func (k *Call) swap(to int, out []byte, from int, in []byte, round int) bool {
	x, tag, fault := &k.transfer, k.tag|round, k.transfer.fault
	x.Begin(k.c, Half{to, tag, out}, Half{from, tag, in})
	x.fault, k.shorter = fault, false
	x.Out.Collective, x.In.Collective = true, true
	return true
}

// give describes the sending of data to a rank that takes it.
func (k *Call) give(to, round int, data []byte) bool { return k.swap(to, data, Nobody, nil, round) }

// take describes the filling of data with what a rank gives.
func (k *Call) take(from, round int, data []byte) bool { return k.swap(Nobody, nil, from, data, round) }

// Step implements Machine.
func (k *Call) Step(e *engine.Engine) Need {
	switch k.phase {
	case begun:
		return k.enter(e)
	case working:
		return Work
	case transferring:
		if t := &k.transfer; t.fault != nil && t.stage == described {
			return k.fail(e, k.c.Named(k.op, mpierr.NoRank, t.why(e)))
		}
		switch need := k.transfer.step(e); need {
		case Done:
			return k.taken(e)
		case Last: // of the transfer
			return Wait
		default:
			return need
		}
	case ending:
		if k.wrong != nil {
			return k.fail(e, k.wrong)
		}
		e.Tick() // nobody waits, and what was sent last is to leave now
		k.phase = over
	}
	return Done
}

// enter sees that the arguments are right and the communicator whole.
func (k *Call) enter(e *engine.Engine) Need {
	if k.wrong != nil {
		return k.fail(e, k.wrong)
	}
	e.OpenContext(k.c.Context, k.c.Group)
	if failed, broken := e.Revoked(k.c.Context); broken {
		return k.fail(e, &mpierr.Error{Op: k.op, Class: mpierr.ProcFailed, Rank: k.c.RankOf(failed), Err: errBroken})
	}
	k.phase = working
	return Work
}

// Work implements Machine.
func (k *Call) Work() {
	if k.phase == transferring {
		k.transfer.Work()
		return
	}
	k.phase = ending
	if k.next(k) {
		k.phase = transferring
	}
	k.steps++
}

// Met implements Machine.
func (k *Call) Met() bool { return k.transfer.Met() }

// taken ends a transfer of which both halves are over.
func (k *Call) taken(e *engine.Engine) Need {
	if err := k.outcome(); err != nil {
		return k.fail(e, err)
	}
	k.transfer.fault, k.phase = nil, working
	return Work
}

// outcome returns what is wrong with the transfer, or nil. A failure at another rank
// counts before this rank's giving up.
func (k *Call) outcome() error {
	x := &k.transfer
	if x.to != Nobody && x.Out.Err() != nil {
		return k.c.Named(k.op, x.to, x.Out.Err())
	}
	if x.from != Nobody && !x.withdrawn {
		if err := x.In.Err(); err != nil && !errors.Is(err, mpierr.Truncate) {
			return k.c.Named(k.op, x.from, err)
		}
		if n, want := x.In.Length, len(x.In.Buffer); n > want || n < want && !k.shorter {
			return mpierr.New(k.op, mpierr.Count, x.from, "it sent %d bytes where %d were expected: slices of different lengths", n, want)
		}
	}
	if x.unsent || x.withdrawn {
		return k.c.Named(k.op, mpierr.NoRank, x.fault)
	}
	return nil
}

// fail ends the call with err, whose rank is one of c, and breaks the communicator, since
// the others wait.
func (k *Call) fail(e *engine.Engine, err error) Need {
	m := mpierr.Named(k.op, mpierr.NoRank, err)
	if m.Class == mpierr.Timeout {
		m.Rank = mpierr.NoRank // the rank that this one waited for may have waited itself
	}
	k.c.Break(e, k.c.Context, m)
	k.err, k.phase = m, over
	return Done
}

// GiveUp implements Machine.
func (k *Call) GiveUp(err error) { k.transfer.GiveUp(err) }

// Drop implements Machine.
func (k *Call) Drop(e *engine.Engine) {
	if k.phase == transferring {
		k.transfer.Drop(e)
	}
	k.phase = over
}
