package rma

import "github.com/xdprma/xdprma/mpierr"

// Error is the error of every call: the operation, its class, the rank concerned
// (or NoRank), and the cause. The rank is one of the window that the call was made
// on, or of the communicator.
type Error = mpierr.Error

// Class is an MPI error class (section 11.6.2). It is an error itself, so that
// errors.Is(err, rma.ErrRange) reports whether err is of that class.
type Class = mpierr.Class

// NoRank is the Rank of an Error that concerns no particular process.
const NoRank = mpierr.NoRank

// The classes that the library raises. The standard's classes have the values of the MPI
// 5.0 ABI.
const (
	ErrAccess      = mpierr.Access // see Access
	ErrArg         = mpierr.Arg
	ErrAssert      = mpierr.Assert
	ErrBase        = mpierr.Base
	ErrComm        = mpierr.Comm
	ErrCount       = mpierr.Count
	ErrDisp        = mpierr.Disp
	ErrGroup       = mpierr.Group
	ErrIntern      = mpierr.Intern
	ErrLocktype    = mpierr.Locktype
	ErrNoMem       = mpierr.NoMem
	ErrOp          = mpierr.Op
	ErrOther       = mpierr.Other // a callback of the program failed
	ErrRank        = mpierr.Rank
	ErrRMAAttach   = mpierr.RMAAttach
	ErrRMAConflict = mpierr.RMAConflict
	ErrRange       = mpierr.RMARange
	ErrRMAShared   = mpierr.RMAShared
	ErrRMASync     = mpierr.RMASync
	ErrSize        = mpierr.Size
	ErrTag         = mpierr.Tag
	ErrTruncate    = mpierr.Truncate
	ErrType        = mpierr.Type
	ErrWin         = mpierr.Win
	ErrRMAFlavor   = mpierr.RMAFlavor
	ErrProcFailed  = mpierr.ProcFailed  // a process died or was not heard of
	ErrClosed      = mpierr.Closed      // the node or window was closed
	ErrUnsupported = mpierr.Unsupported // the machine cannot do what was asked, or a rank is of another build
	ErrTimeout     = mpierr.Timeout     // the context of the call has ended
)

// ClassOf returns the class of err: 0 for nil, ErrIntern for an error without one.
func ClassOf(err error) Class { return mpierr.ClassOf(err) }

func newError(op string, class Class, rank int, format string, args ...any) *Error {
	return mpierr.New(op, class, rank, format, args...)
}

// named returns err as the error of the call op on a target, a rank of the window;
// with NoRank, on the rank that err itself concerns.
func named(op string, target int, err error) error {
	if err == nil {
		return nil
	}
	return mpierr.Named(op, target, err)
}
