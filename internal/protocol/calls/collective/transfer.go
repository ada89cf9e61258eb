package collective

import (
	"errors"
	"fmt"
	"slices"

	"github.com/xdprma/xdprma/internal/protocol/engine"
)

// Transfer is a message to one rank, or one from another, or both at once. It implements
// Machine. A call that is given up withdraws what it can; a message that is on its way into
// its memory is waited for.
type Transfer struct {
	Out engine.Sending // of the message to a rank
	In  engine.Receive // of the message from one

	c                 *Comm
	to, from          int // ranks of c, or Nobody; from may be engine.AnySource
	stage             transferStage
	fault             error  // what it is given up with
	spare             []byte // a copy of what is sent, for giving that up
	unsent, withdrawn bool   // a half was given up
}

type transferStage uint8

const (
	described transferStage = iota
	posted
	ended
)

// Half is one half of a Transfer: a message to or from a rank of the communicator.
type Half struct {
	Rank, Tag int
	Data      []byte // what is sent, or where the message goes
}

// Nobody is the rank of a half that there is not.
const Nobody = -2

// errOtherHalf is what a half is given up with; the other half's error counts.
var errOtherHalf = errors.New("the other half of the transfer has failed")

// Begin makes t the transfer of two halves on c, which must not move or change until t is
// over.
func (t *Transfer) Begin(c *Comm, send, recv Half) {
	*t = Transfer{
		c: c, to: send.Rank, from: recv.Rank,
		Out: engine.Sending{Context: c.Context, Tag: send.Tag, Members: c.Group, Data: send.Data},
		In:  engine.Receive{Context: c.Context, Source: recv.Rank, Tag: recv.Tag, Members: c.Group, Buffer: recv.Data},
	}
	if recv.Rank >= 0 {
		t.In.Source = c.WorldRank(recv.Rank)
	}
}

// Step implements Machine.
func (t *Transfer) Step(e *engine.Engine) Need {
	first := t.stage == described
	need := t.step(e)
	if first && need == Done {
		e.Tick() // nobody waits, and the message is to leave now
	}
	return need
}

// step is Step of a transfer that something follows.
func (t *Transfer) step(e *engine.Engine) Need {
	switch t.stage {
	case described:
		return t.post(e)
	case posted:
		return t.wait(e)
	}
	return Done
}

// post begins both halves. A message that is there is taken even if the call was given up before.
func (t *Transfer) post(e *engine.Engine) Need {
	t.stage = posted
	if t.from != Nobody {
		if t.from != engine.AnySource {
			e.Connect(t.In.Source)
		}
		e.PostReceive(&t.In)
	}
	if t.to != Nobody {
		t.Out.To = e.Connect(t.c.WorldRank(t.to)).Peer()
		e.PostSend(&t.Out)
	}
	if t.from == engine.AnySource && !t.In.Met() {
		t.c.Greet(e)
	}
	return t.wait(e)
}

func (t *Transfer) end(e *engine.Engine) Need {
	t.stage, t.spare = ended, nil
	if (t.unsent || t.withdrawn) && t.fault != errOtherHalf {
		t.fault = t.why(e)
	}
	return Done
}

// why returns what t was given up with, and says so if it waited for a rank to join the job.
func (t *Transfer) why(e *engine.Engine) error {
	for _, rank := range []int{t.to, t.from} {
		if rank < 0 || rank == t.c.Rank {
			continue
		}
		if s := e.Session(t.c.WorldRank(rank)); s == nil || !s.HasPath() {
			return fmt.Errorf("rank %d of the job has not joined, or cannot be reached yet: %w", t.c.WorldRank(rank), t.fault)
		}
	}
	return t.fault
}

func (t *Transfer) sent() bool     { return t.to == Nobody || t.Out.Met() }
func (t *Transfer) received() bool { return t.from == Nobody || t.In.Met() }

// halfFailed reports whether a half has failed, so that nobody need wait for the other.
func (t *Transfer) halfFailed() bool {
	return t.to != Nobody && t.Out.Met() && t.Out.Err() != nil || t.from != Nobody && t.In.Met() && t.In.Err() != nil
}

// Met implements Machine. Once t is given up, what is on its way is waited for.
func (t *Transfer) Met() bool {
	return t.sent() && t.received() || t.fault == nil && t.halfFailed()
}

// wait ends t once both halves are over, or were withdrawn as far as they are not.
func (t *Transfer) wait(e *engine.Engine) Need {
	if t.sent() && t.received() {
		return t.end(e)
	}
	if t.halfFailed() && t.fault == nil {
		t.fault = errOtherHalf
	}
	switch {
	case t.fault != nil:
	case t.to == Nobody || t.from == Nobody:
		return Last
	default:
		return Wait
	}
	if !t.sent() {
		if t.spare == nil && len(t.Out.Data) > 0 {
			return Work
		}
		e.Abandon(&t.Out, t.spare)
		e.Tick()
		t.unsent = true
	}
	if !t.received() {
		if !e.WithdrawReceive(&t.In) {
			return Finish
		}
		t.withdrawn = true
	}
	return t.end(e)
}

// Work implements Machine. It copies what is sent, for giving that up, before others have to
// wait for it.
func (t *Transfer) Work() { t.spare = slices.Clone(t.Out.Data) }

// GiveUp implements Machine.
func (t *Transfer) GiveUp(err error) { t.fault = err }

// Drop implements Machine.
func (t *Transfer) Drop(e *engine.Engine) {
	if t.stage == posted && t.from != Nobody {
		e.WithdrawReceive(&t.In)
	}
	t.stage = ended
}

// Errs returns what the halves of t, which is over, have failed with, or nil. A half that
// was given up because of the other has not failed.
func (t *Transfer) Errs() (send, recv error) {
	if t.to != Nobody {
		send = t.Out.Err()
	}
	if t.from != Nobody {
		recv = t.In.Err()
	}
	if t.fault != errOtherHalf {
		if t.unsent {
			send = t.fault
		}
		if t.withdrawn {
			recv = t.fault
		}
	}
	return send, recv
}
