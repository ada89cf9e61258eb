package window

import (
	"fmt"

	"github.com/xdprma/xdprma/datatype"
	"github.com/xdprma/xdprma/mpierr"
)

// CallKind is a communication call, as the target of an access sees it.
type CallKind uint8

// The calls.
const (
	CallPut           CallKind = iota
	CallGet                    // the target is read
	CallAccumulate             // also with Replace
	CallGetAccumulate          // FetchAndOp too
	CallCompareSwap            // MPI_Compare_and_swap
)

var callNames = [...]string{"put", "get", "accumulate", "get_accumulate", "compare_and_swap"}

// String returns the call's name in the standard, or "unknown".
func (k CallKind) String() string {
	if int(k) >= len(callNames) {
		return "unknown"
	}
	return callNames[k]
}

// Access is a kind of access to a window: by whom, and how.
type Access struct {
	Origin int            // rank in the job
	Call   CallKind       // what it did
	Op     datatype.Op    // of accumulate and get_accumulate
	Basic  datatype.Basic // of the accumulate calls
}

// String describes the access.
func (a Access) String() string {
	switch a.Call {
	case CallPut, CallGet:
		return fmt.Sprintf("%s by rank %d", a.Call, a.Origin)
	case CallCompareSwap:
		return fmt.Sprintf("%s of %s by rank %d", a.Call, a.Basic, a.Origin)
	}
	return fmt.Sprintf("%s with %s of %s by rank %d", a.Call, a.Op, a.Basic, a.Origin)
}

// Reads reports whether a changes nothing: it is over once its origin has the result.
func (a Access) Reads() bool {
	return a.Call == CallGet || a.Call == CallGetAccumulate && a.Op == datatype.NoOp
}

// Conflict is a pair of accesses that touched the same bytes with nothing to order
// them. The program is in order as far as MPI is concerned, but what the bytes, or
// the results of the calls, hold is undefined.
type Conflict struct {
	Window        uint32 // id of the window
	Name          string // of the window at the target, if it has one
	Target        int    // rank in the job whose memory it is
	First, Second Access // in the order in which they came
	Start, End    uint64 // the bytes of the window; of a dynamic one, the addresses
}

// Err returns the conflict as an error of the class RMAConflict. No call returns
// it: it is for those who want to treat conflicts as errors. Its rank is Target.
func (c Conflict) Err() error {
	name := fmt.Sprint(c.Window)
	if c.Name != "" {
		name = fmt.Sprintf("%q", c.Name)
	}
	hint := ""
	if c.First.Origin == c.Second.Origin {
		hint = "; in an epoch of a lock a Flush between them does that, and a result that has come back does not"
	}
	return mpierr.New("check", mpierr.RMAConflict, c.Target,
		"window %s, bytes %d to %d: %s and %s are not ordered by synchronisation%s", name, c.Start, c.End, c.First, c.Second, hint)
}
