package datatype

import "github.com/xdprma/xdprma/mpierr"

// The classes of errors that this package's functions return. errors.Is(err, ErrType)
// reports whether err, which is an *mpierr.Error, is of that class.
const (
	ErrArg   = mpierr.Arg
	ErrCount = mpierr.Count
	ErrOp    = mpierr.Op
	ErrSize  = mpierr.Size
	ErrType  = mpierr.Type
)
