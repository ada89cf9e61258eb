// Package program makes random programs of one-sided communication, with messages and
// collectives between. From one seed follow the windows of a few ranks, what each rank
// does call by call, and what a sequential model says comes of it: every byte of the
// windows and of the results, or, where the standard leaves several outcomes open, what Judge holds
// the outcomes to.
//
// The programs are in order: concurrent accesses to a byte do not conflict
// (section 11.7), and no rank waits for one that waits for it. A Machine carries
// out the calls: over the public API, or in the simulation.
package program

import (
	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/window"
)

// Null is the target that stands for no process (MPI_PROC_NULL).
const Null = -2

// Every stands for all targets where a call completes operations.
const Every = -1

// Program is what all ranks of a job do. It is not changed by carrying it out.
type Program struct {
	Seed    uint64
	Ranks   int
	Windows []Window
	Shared  []Shared
	Scripts [][]Step // of each rank
}

// Window describes the windows that the ranks expose to each other.
type Window struct {
	Flavor       window.Flavor
	Sizes, Units []int   // bytes, and the displacement unit, of each rank
	Cuts         [][]int // dynamic: where each rank's regions end; they are cut from one slice
}

// Shared is words of a window that several ranks change at the same time, each in
// a field of bits of its own, so that a value that was read tells whose changes
// had been made.
type Shared struct {
	Kind        SharedKind
	Win, Target int
	Offset      int      // bytes from the start of the window
	Init        []uint64 // the words before the first change
}

// SharedKind says how words are shared.
type SharedKind uint8

// The kinds of sharing.
const (
	Counted SharedKind = iota // each rank adds 1 to its field
	Flipped                   // each rank counts in its field, by exclusive or
	Swapped                   // one word, replaced by compare and swap
	Guarded                   // counted with get and put, under the exclusive lock
)

// Code says what a step does.
type Code uint8

// The steps. Kinds that name calls of the standard stand for these calls.
const (
	Barrier Code = iota
	Fence
	Post
	Start
	Complete
	Wait // Testing: by test, again and again
	Lock
	Unlock
	LockAll
	UnlockAll
	Flush // Target may be Every; Local: flush_local
	Sync
	Transfer // communicate
	Await    // wait for the requests of the steps Group, which issue calls or messages
	Check    // compare the rank's own window with Memory
	Store    // store Memory in the rank's own window at Offset
	Send     // a message
	Recv
	Collective
	Notify       // of all that was issued to Target
	WaitNotified // for Number of Counter
)

// The counters of each window.
const (
	OfAll       = iota // of Notify
	OfCalls            // of calls that notify
	NumCounters        // how many there are
)

// Step is one thing that a rank does.
type Step struct {
	Code      Code
	Win       int
	Target    int
	Group     []int
	Assert    window.Assert
	Exclusive bool
	Local     bool
	Testing   bool
	Counter   int // of Notify and WaitNotified
	Number    uint64
	Offset    int
	Memory    []byte
	Shared    []int // Check: those whose words are not in Memory, but reported
	Call      *Call
	Talk      *Talk // of Send, Recv and Collective
}

// CallCode names a communication call.
type CallCode uint8

// The communication calls.
const (
	Put CallCode = iota
	Get
	Accumulate
	GetAccumulate
	FetchAndOp
	CompareAndSwap
)

// Call is a communication call.
type Call struct {
	Code      CallCode
	Requested bool // the call that has a request
	Notifies  bool // at counter OfCalls
	Win       int
	Target    int
	Disp      int // bytes from the start of the target's window, a multiple of its unit
	Op        datatype.Op
	Origin    Side // what is read, in Data
	Result    Side // what is written to, which is Want afterwards
	At        Side // at the target; without a datatype it is that of the other side
	Data      []byte
	Compare   []byte
	Want      []byte // nil if Judge judges

	// Of a call on shared words:
	Shared int // -1: none
	Word   int // the first
	From   int // Guarded: the step whose result is put back with Data added; -1: none
}

// Side is memory that is read or written: Count entries of a datatype in Len bytes,
// with displacement 0 at Base.
type Side struct {
	*Layout
	Count     int
	Base, Len int
}

// Fetches reports whether the call has a result.
func (c *Call) Fetches() bool { return c.Code != Put && c.Code != Accumulate }

// Reads reports whether the call reads origin memory.
func (c *Call) Reads() bool { return c.Code != Get && c.Op != datatype.NoOp }

// Basic returns the predefined datatype of the elements that an accumulate call is
// about, and 0 for put and get.
func (c *Call) Basic() datatype.Basic {
	if c.Code == Put || c.Code == Get {
		return 0
	}
	return c.Where().elements[0].basic
}
