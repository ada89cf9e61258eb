// Package mpierr holds the one error type of the library, and the error classes of the
// standard's one-sided chapter (section 11.6) and of its messages and communicators.
//
// An Error names the call, the class, the rank concerned and the cause. errors.Is finds the class
// and errors.As the Error, however it is wrapped. Packages rma, comm and datatype name the
// classes that their calls return, with Err in front: rma.ErrRange is mpierr.RMARange. Programs
// need this package where they take an Error apart, or make one of their own.
package mpierr

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// Class is an MPI error class. The values are those of the MPI 5.0 ABI where
// the chapter's table names one; the classes from ProcFailed on are the
// library's own and lie outside the range of the ABI.
//
// A Class is itself an error, so errors.Is(err, rma.ErrRange) reports whether
// err carries that class.
type Class int32

// The classes of the standard that the library raises.
const (
	Success     Class = 0  // no error
	Access      Class = 20 // the owner of a window does not give the origin the right
	Arg         Class = 13 // an argument is invalid and no other class says why
	Assert      Class = 22 // invalid assertion
	Comm        Class = 5  // the communicator has been freed
	Base        Class = 24 // invalid base passed
	Count       Class = 2  // invalid count
	Disp        Class = 26 // invalid displacement or displacement unit
	Group       Class = 9  // invalid group
	Intern      Class = 17 // the implementation failed: a bug of the library
	Locktype    Class = 37 // invalid lock type
	NoMem       Class = 39 // memory is exhausted
	Op          Class = 10 // invalid reduction operator, or one undefined for the datatype
	Other       Class = 16 // a callback of the program failed
	Rank        Class = 6  // invalid rank
	RMAAttach   Class = 46 // memory cannot be attached
	RMAConflict Class = 47 // conflicting accesses to a window
	RMARange    Class = 48 // target memory is not part of the window
	RMAShared   Class = 49 // memory cannot be shared
	RMASync     Class = 50 // wrong synchronisation of communication calls
	Size        Class = 52 // invalid size
	Tag         Class = 4  // invalid tag
	Truncate    Class = 15 // a message is longer than the buffer that receives it
	Type        Class = 3  // invalid datatype
	Win         Class = 56 // invalid window
	RMAFlavor   Class = 57 // the window has the wrong flavour for the call
)

// The library's own classes.
const (
	ProcFailed  Class = 1001 // a process died, or was not heard of within the limit
	Closed      Class = 1002 // the node, communicator or window was closed
	Unsupported Class = 1003 // the machine or the kernel cannot do what was asked, or a rank is of another build
	Timeout     Class = 1004 // the context of a call has ended, be it by its deadline or cancelled
)

var names = map[Class]string{
	Success: "success", Access: "no right to the window", Arg: "invalid argument", Assert: "invalid assertion",
	Base: "invalid base", Comm: "invalid communicator", Count: "invalid count", Disp: "invalid displacement",
	Group: "invalid group", Intern: "internal error", Locktype: "invalid lock type", NoMem: "out of memory",
	Op: "invalid operator", Other: "a callback failed", Rank: "invalid rank", RMAAttach: "memory cannot be attached",
	RMAConflict: "conflicting accesses", RMARange: "outside the window",
	RMAShared: "memory cannot be shared", RMASync: "wrong synchronisation",
	Size: "invalid size", Tag: "invalid tag", Truncate: "message truncated", Type: "invalid datatype", Win: "invalid window",
	RMAFlavor: "wrong window flavour", ProcFailed: "process failed", Closed: "closed",
	Unsupported: "unsupported", Timeout: "timed out or cancelled",
}

// Error returns the class in words.
func (c Class) Error() string {
	if s, ok := names[c]; ok {
		return s
	}
	return "error class " + strconv.Itoa(int(c))
}

// Known reports whether c is a class that the library raises; what a peer
// claims is checked with it.
func (c Class) Known() bool {
	_, ok := names[c]
	return ok
}

// NoRank is the Rank of an Error that concerns no particular process.
const NoRank = -1

// Error says which operation failed, with which class, at which rank, and why. The
// rank is one in the communicator, or in that of the window, that the call was made
// on; of a call on neither, such as Join, it is one in the job.
type Error struct {
	Op    string // the call as a user knows it: "put", "lock", "window create"
	Class Class  // the MPI error class; errors.Is finds it
	Rank  int    // the target or peer concerned, or NoRank
	Err   error  // the cause, or nil
}

// New makes an Error whose cause is formatted from format and args; %w wraps.
func New(op string, class Class, rank int, format string, args ...any) *Error {
	return &Error{Op: op, Class: class, Rank: rank, Err: fmt.Errorf(format, args...)}
}

// Named returns err as the error of the call op, with the class and cause that it
// has, at the given rank, or with NoRank at its own. The end of a context becomes an
// error of class Timeout that wraps that of the context.
func Named(op string, rank int, err error) *Error {
	var e *Error
	switch {
	case errors.As(err, &e):
		if rank == NoRank {
			rank = e.Rank
		}
		return &Error{Op: op, Class: e.Class, Rank: rank, Err: e.Err}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &Error{Op: op, Class: Timeout, Rank: rank, Err: err}
	}
	return &Error{Op: op, Class: Intern, Rank: rank, Err: err}
}

func (e *Error) Error() string {
	s := e.Op
	if e.Rank != NoRank {
		s += " (rank " + strconv.Itoa(e.Rank) + ")"
	}
	s += ": " + e.Class.Error()
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is reports whether target is the class of e.
func (e *Error) Is(target error) bool {
	c, ok := target.(Class)
	return ok && c == e.Class
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ClassOf returns the class of err: Success for nil, Intern for an error that
// carries none, and of errors that are joined that of the first with one.
func ClassOf(err error) Class {
	var e *Error
	var c Class
	switch {
	case err == nil:
		return Success
	case errors.As(err, &e):
		return e.Class
	case errors.As(err, &c):
		return c
	}
	return Intern
}
