package comm

import "github.com/xdprma/xdprma/mpierr"

// The classes of errors that this package's calls return. errors.Is(err, ErrRank) reports
// whether err, which is an *mpierr.Error, is of that class.
const (
	ErrArg         = mpierr.Arg
	ErrComm        = mpierr.Comm
	ErrCount       = mpierr.Count
	ErrGroup       = mpierr.Group
	ErrIntern      = mpierr.Intern
	ErrNoMem       = mpierr.NoMem
	ErrOp          = mpierr.Op
	ErrOther       = mpierr.Other // a callback of the program failed
	ErrRank        = mpierr.Rank
	ErrTag         = mpierr.Tag
	ErrTruncate    = mpierr.Truncate
	ErrType        = mpierr.Type
	ErrProcFailed  = mpierr.ProcFailed  // a process died or was not heard of
	ErrClosed      = mpierr.Closed      // the node was closed
	ErrUnsupported = mpierr.Unsupported // a rank is of another build
	ErrTimeout     = mpierr.Timeout     // the context of the call has ended
)
