// Package collective is what the ranks of a communicator do together: messages between two
// of them, its collectives, and the making of communicators. Each call is a Machine: it posts messages to the
// engine, says what it waits for, and takes in what has come. It knows no clock, no
// goroutine and no network. Package comm steps it on real ranks, and internal/lab/sim on
// simulated ones.
package collective

import "github.com/xdprma/xdprma/internal/protocol/engine"

// Need is what a machine needs before its next step.
type Need uint8

// The needs.
const (
	Done   Need = iota // nothing: it is over
	Work               // Work, without the engine's lock
	Wait               // Met, or GiveUp
	Last               // Met, which is the end of the call, or GiveUp
	Finish             // Met: it was given up, and a message is on its way into its memory
)

// Machine is a call at one rank. Its driver calls Step until that says Done, and gives it
// what it needs in between.
type Machine interface {
	// Step goes on as far as it can. It is called with the engine's lock held.
	Step(e *engine.Engine) Need
	// Met reports whether the wait is over. It is called with the engine's lock held.
	Met() bool
	// Work computes and copies, and is called without the engine's lock.
	Work()
	// GiveUp has the next steps end the call with err: the caller's context has ended. A
	// call that turns out to be complete goes on. A collective that is given up before its
	// first step sends nothing.
	GiveUp(err error)
	// Drop ends the call at a rank that has left the job: its engine sends nothing more.
	Drop(e *engine.Engine)
}
