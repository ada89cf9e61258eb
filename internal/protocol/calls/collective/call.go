package collective

import (
	"errors"
	"slices"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/internal/mpierr"
	"github.com/xdprma/xdprma/internal/protocol/engine"
)

// Call is a collective at one rank, from its begin to its end. It is a sequence of
// exchanges: in each the rank sends a message to one other, or receives one, or both at
// once. It implements Machine.
type Call struct {
	c    *Comm
	op   string
	next func(*Call) bool // takes in what has come and describes the exchange that follows; false: none does

	phase phase
	steps int   // calls of next
	tag   int   // of the first round
	wrong error // with what this rank was given
	fault error // what it is given up with
	err   error

	// The exchange.
	to, from          int // ranks, or nobody
	peer              int // in the job, that is to be met
	out               engine.Sending
	in                engine.Receive
	shorter           bool   // what comes may be shorter than its memory
	spare             []byte // a copy of what is sent, for giving that up
	unsent, withdrawn bool   // a half was given up

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
	begun   phase = iota
	working       // next is to be called
	ready         // the exchange is described
	posted        // and begun
	ending        // next has nothing more
	over
)

const nobody = -1

var (
	errBroken = errors.New("the communicator is broken: this member has failed, or given up a collective")
	// errOtherHalf is what a half of an exchange is given up with; the other half's error counts.
	errOtherHalf = errors.New("the other half of the exchange has failed")
)

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

// exchange describes the next exchange: round tells messages of the call between the same
// two ranks apart.
func (k *Call) exchange(to int, out []byte, from int, in []byte, round int) bool {
	c, tag := k.c, k.tag|round
	k.to, k.from, k.shorter = to, from, false
	k.out = engine.Sending{Context: c.Context, Tag: tag, Members: c.Group, Collective: true, Data: out}
	k.in = engine.Receive{Context: c.Context, Tag: tag, Members: c.Group, Collective: true, Buffer: in}
	return true
}

// give describes the sending of data to a rank that takes it.
func (k *Call) give(to, round int, data []byte) bool { return k.exchange(to, data, nobody, nil, round) }

// take describes the filling of data with what a rank gives.
func (k *Call) take(from, round int, data []byte) bool {
	return k.exchange(nobody, nil, from, data, round)
}

// Step implements Machine.
func (k *Call) Step(e *engine.Engine) Need {
	switch k.phase {
	case begun:
		return k.enter(e)
	case working:
		return Work
	case ready:
		return k.post(e)
	case posted:
		return k.wait(e)
	case ending:
		if k.wrong != nil {
			return k.fail(e, k.wrong)
		}
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
	if k.phase == posted { // before others have to wait for it
		k.spare = slices.Clone(k.out.Data)
		return
	}
	k.phase = ending
	if k.next(k) {
		k.phase = ready
	}
	k.steps++
}

// Peer implements Machine.
func (k *Call) Peer() int { return k.peer }

// post begins the exchange.
func (k *Call) post(e *engine.Engine) Need {
	if k.fault != nil {
		return k.fail(e, k.c.Named(k.op, k.to, k.fault))
	}
	if k.to >= 0 {
		k.peer = k.c.WorldRank(k.to)
		if k.out.To = e.Session(k.peer).Peer(); k.out.To == nil {
			return Meet
		}
	}
	if k.from >= 0 {
		k.peer = k.c.WorldRank(k.from)
		if k.in.Source = k.peer; e.Session(k.peer) == nil {
			return Meet
		}
	}
	k.phase = posted
	if k.from >= 0 {
		e.PostReceive(&k.in)
	}
	if k.to >= 0 {
		e.PostSend(&k.out)
	}
	return k.wait(e)
}

func (k *Call) sent() bool     { return k.to < 0 || k.out.Met() }
func (k *Call) received() bool { return k.from < 0 || k.in.Met() }

// halfFailed reports whether a half of the exchange has failed, so that nobody need wait
// for the other.
func (k *Call) halfFailed() bool {
	return k.to >= 0 && k.out.Met() && k.out.Err() != nil || k.from >= 0 && k.in.Met() && k.in.Err() != nil
}

// Met implements Machine. Once the call is given up, what is on its way is waited for.
func (k *Call) Met() bool { return k.sent() && k.received() || k.fault == nil && k.halfFailed() }

// wait goes on once the exchange is over, or was withdrawn as far as it is not.
func (k *Call) wait(e *engine.Engine) Need {
	if k.sent() && k.received() {
		return k.taken(e)
	}
	if k.halfFailed() && k.fault == nil {
		k.fault = errOtherHalf
	}
	if k.fault == nil {
		return Wait
	}
	if !k.sent() {
		if k.spare == nil && len(k.out.Data) > 0 {
			return Work
		}
		e.Abandon(&k.out, k.spare)
		e.Tick()
		k.unsent = true
	}
	if !k.received() {
		if !e.WithdrawReceive(&k.in) {
			return Finish
		}
		k.withdrawn = true
	}
	return k.taken(e)
}

// taken ends an exchange of which both halves are over.
func (k *Call) taken(e *engine.Engine) Need {
	if err := k.outcome(); err != nil {
		return k.fail(e, err)
	}
	k.fault, k.spare, k.phase = nil, nil, working
	return Work
}

// outcome returns what is wrong with the exchange, or nil. A failure at another rank
// counts before this rank's giving up.
func (k *Call) outcome() error {
	if k.to >= 0 && k.out.Err() != nil {
		return k.c.Named(k.op, k.to, k.out.Err())
	}
	if k.from >= 0 && !k.withdrawn {
		if err := k.in.Err(); err != nil && !errors.Is(err, mpierr.Truncate) {
			return k.c.Named(k.op, k.from, err)
		}
		if n, want := k.in.Length, len(k.in.Buffer); n > want || n < want && !k.shorter {
			return mpierr.New(k.op, mpierr.Count, k.from, "it sent %d bytes where %d were expected: slices of different lengths", n, want)
		}
	}
	if k.unsent || k.withdrawn {
		return k.c.Named(k.op, mpierr.NoRank, k.fault)
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
func (k *Call) GiveUp(err error) { k.fault = err }

// Drop implements Machine.
func (k *Call) Drop(e *engine.Engine) {
	if k.phase == posted && k.from >= 0 {
		e.WithdrawReceive(&k.in)
	}
	k.phase = over
}
