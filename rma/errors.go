package rma

import (
	"errors"

	"github.com/xdprma/xdprma/internal/mpierr"
)

// Error is the error of every call: the operation, its class, the rank
// concerned (or NoRank), and the cause.
type Error = mpierr.Error

// Class is an MPI error class (section 11.6.2). It is an error itself, so that
// errors.Is(err, rma.ErrRange) reports whether err is of that class.
type Class = mpierr.Class

// NoRank is the Rank of an Error that concerns no particular process.
const NoRank = mpierr.NoRank

// The classes that the library raises. Those of the standard have the values of
// the MPI 5.0 ABI.
const (
	ErrArg         = mpierr.Arg
	ErrAssert      = mpierr.Assert
	ErrBase        = mpierr.Base
	ErrCount       = mpierr.Count
	ErrDisp        = mpierr.Disp
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
	ErrUnsupported = mpierr.Unsupported // the machine cannot do what was asked
	ErrTimeout     = mpierr.Timeout     // a limit on time has passed
)

// ClassOf returns the class of err: 0 for nil, ErrIntern for an error without one.
func ClassOf(err error) Class { return mpierr.ClassOf(err) }

func newError(op string, class Class, rank int, format string, args ...any) *Error {
	return mpierr.New(op, class, rank, format, args...)
}

// named returns err as the error of the call op on a target; with NoRank, of the
// rank that err itself concerns.
func named(op string, target int, err error) error {
	var e *Error
	if errors.As(err, &e) {
		if target == NoRank {
			target = e.Rank
		}
		return &Error{Op: op, Class: e.Class, Rank: target, Err: e.Err}
	}
	return err
}
