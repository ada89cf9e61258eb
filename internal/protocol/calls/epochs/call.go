package epochs

import (
	"fmt"

	"github.com/xdprma/xdprma/internal/protocol/engine/onesided"
	"github.com/xdprma/xdprma/mpierr"
	"github.com/xdprma/xdprma/window"
)

// Status says what a call or an operation needs next.
type Status uint8

const (
	Over    Status = iota // nothing: see Err
	Waits                 // that Until is met
	Gathers               // a barrier of the window's ranks, and then Met
	Acts                  // Act; of an Operation alone
)

// kind names a call.
type kind uint8

const (
	lock   kind = iota
	unlock      // also of all
	lockAll
	flush // also of all; those up to here are of epochs of locks
	fence
	complete
	wait
	free
)

// The stages of a call. Not every call has all of them.
const (
	starting  uint8 = iota // nothing has been done
	asking                 // the targets are asked, one after the other
	awaiting               // they are waited for, one after the other
	gathering              // the ranks meet
	ordering               // and once more, in checking mode
)

// Call is a synchronisation call that may wait. It is a value: whoever makes the call keeps
// it until it is over.
type Call struct {
	w     *Window
	name  string
	kind  kind
	stage uint8
	done  Completion // of a flush or fence
	locks window.LockType
	how   window.Assert

	one      bool   // it concerns one target, lock_all one after the other
	target   int    // which
	ranks    []int  // the targets of others, unless they are few
	few      [8]int // in memory that needs no allocation
	n        int    // how many these are
	listed   bool   // its caller names them
	opened   int    // of a list: how many targets had an access when it began
	next     int    // the place in ranks of the target that is asked or waited for
	waits    bool   // its accesses know that it waits
	used     bool   // fence: operations were issued since the last one
	exposure uint64 // wait: the one that it ends
	until    Condition
	err      error // the first
}

// Until returns the condition that the call waits for.
func (c *Call) Until() Condition { return c.until }

// Err returns the first error of a call that is over.
func (c *Call) Err() error { return c.err }

// Name returns the call as errors name it.
func (c *Call) Name() string { return c.name }

// Ends reports whether the call is Free, whose barrier must work after others have failed.
func (c *Call) Ends() bool { return c.kind == free }

// Settled reports whether a call whose condition has been met is over, and without an
// error. It need not be called within a turn. False means nothing.
func (c *Call) Settled() bool {
	over := c.kind == flush && c.one && c.stage == awaiting && !c.w.targets[c.target].access.Failed()
	if over {
		c.setWaits(false)
	}
	return over
}

// setWaits tells the accesses whether the call waits for what was issued there, where that
// may need locks: meanwhile these hold up no other calls.
func (c *Call) setWaits(waits bool) {
	if c.waits != waits && c.kind <= flush && (!waits || c.needsLocks()) {
		c.countWaiting(waits)
	}
}

// needsLocks reports whether the call may wait for locks that were asked for.
func (c *Call) needsLocks() bool {
	if !c.one {
		return true
	}
	a := c.w.targets[c.target].access
	return a == nil || a.Locking()
}

// countWaiting is setWaits for a change.
func (c *Call) countWaiting(waits bool) {
	calls := int32(1)
	if c.waits = waits; !waits {
		calls = -1
	}
	for i := range c.count() {
		if a := c.access(c.at(i)); a != nil {
			a.Waiting(calls)
		}
	}
}

// Step does what the call can do now.
func (c *Call) Step(t Turn) Status {
	c.setWaits(false)
	status := c.step(t)
	c.setWaits(status == Waits)
	return status
}

func (c *Call) step(t Turn) Status {
	if err := c.w.Usable(c.name); err != nil {
		return c.end(err)
	}
	switch c.kind {
	case lock:
		return c.stepLock(t)
	case unlock:
		return c.stepUnlock(t)
	case lockAll:
		return c.stepLockAll(t)
	case flush:
		return c.stepFlush(t)
	case fence:
		return c.stepFence(t)
	case complete:
		return c.stepComplete(t)
	case wait:
		return c.stepWait(t)
	}
	return c.stepFree(t)
}

// GiveUp ends a call that waits, because of why: the end of its context, or of the node.
// Of some calls a barrier remains, with which the other ranks learn of it.
func (c *Call) GiveUp(t Turn, why error) Status {
	c.setWaits(false)
	rank := mpierr.NoRank
	if _, order := c.until.(*onesided.LockOrderWait); order {
		why = fmt.Errorf("a lock that was asked for before has not been granted: %w", why)
	} else if c.next < c.count() {
		rank = c.at(c.next)
		if a := c.w.targets[rank].access; a != nil && !a.Answers() {
			why = fmt.Errorf("the target has not joined the job, or cannot be reached: %w", why)
		}
	}
	switch c.kind {
	case lock:
		return c.failLock(t, why)
	case lockAll:
		return c.failLockAll(t, why)
	case fence:
		c.fail(named(c.name, rank, why))
		return c.gather(gathering)
	case complete:
		return c.giveUpComplete(why)
	case wait:
		return c.giveUpWait(t, why)
	case free:
		c.fail(named(c.name, rank, why))
		return c.flushed(t)
	}
	return c.end(named(c.name, rank, why))
}

// Met tells the call that the barrier is over, and how. If it has failed, the ranks do not
// gather again on that communicator.
func (c *Call) Met(t Turn, err error) Status {
	if err := c.w.Usable(c.name); err != nil { // freed by another, meanwhile
		return c.end(err)
	}
	c.fail(named(c.name, mpierr.NoRank, err))
	if c.kind == free {
		return c.stepFree(t)
	}
	return c.metFence(t, err)
}

// end ends the call.
func (c *Call) end(err error) Status {
	c.fail(err)
	return Over
}

// fail notes an error, if it is the first.
func (c *Call) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// await has the call wait.
func (c *Call) await(until Condition) Status {
	c.until = until
	return Waits
}

// gather has the ranks meet.
func (c *Call) gather(stage uint8) Status {
	c.stage = stage
	return Gathers
}

// begin has the call begin with the first target.
func (c *Call) begin(stage uint8) { c.stage, c.next = stage, 0 }

// count returns how many targets the call concerns.
func (c *Call) count() int {
	switch {
	case c.one:
		return 1
	case c.ranks != nil:
		return len(c.ranks)
	}
	return c.n
}

// at returns one of them.
func (c *Call) at(i int) int {
	switch {
	case c.one:
		return c.target
	case c.ranks != nil:
		return c.ranks[i]
	}
	return c.few[i]
}

// access returns the access to one of them, nil if there is none. To one of a list there is
// none if there was none when the call began: nothing of this call was issued there.
func (c *Call) access(rank int) *onesided.Access {
	if x := &c.w.targets[rank]; !c.listed || x.place < c.opened {
		return x.access
	}
	return nil
}

// each returns the next target that the call has something to do for, and false once
// there is none. A call for all targets leaves out targets that were not accessed in
// this epoch, because they may have died since an earlier one, which is no failure of
// this epoch.
func (c *Call) each() (rank int, x *target, more bool) {
	for ; c.next < c.count(); c.next++ {
		rank = c.at(c.next)
		if x = &c.w.targets[rank]; c.access(rank) != nil && (c.one || c.listed || x.used) {
			return rank, x, true
		}
	}
	return 0, nil, false
}

// A Completion is what a flush asks for at a target, and waits for.
type Completion uint8

const (
	AtTarget Completion = iota // operations have completed at the origin and at the target
	AtOrigin                   // at the origin: buffers may be used again
	atFence                    // as AtTarget, and the barrier that follows orders the rest
)

func (d Completion) ask(t Turn, a *onesided.Access) {
	switch d {
	case AtTarget:
		t.Flush(a)
	case AtOrigin:
		t.FlushLocal(a)
	default:
		t.FlushUnmarked(a)
	}
}

func (d Completion) until(a *onesided.Access) Condition {
	if d == AtOrigin {
		return (*onesided.LocalWait)(a)
	}
	return (*onesided.FlushWait)(a)
}
