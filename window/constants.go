// Package window has the names that the standard gives windows: kinds of locks, assertions,
// flavours, info, and the conflicts that checking mode finds. Package rma has the windows, and
// most of these names too. Sections named in comments are those of the standard's one-sided
// chapter.
//
// Checking mode looks for accesses to the same memory that nothing orders. rma.Config.Check turns
// it on, and so does the environment variable XDPRMA_CHECK=1. rma.Win.Conflicts returns what it
// has found.
package window

// LockType is the kind of a lock (section 11.5.3); values of the MPI 5.0 ABI.
type LockType int32

// The lock types.
const (
	LockExclusive LockType = 301 // nobody else holds the lock
	LockShared    LockType = 302 // others may hold it shared
)

// Valid reports whether t is a lock type.
func (t LockType) Valid() bool { return t == LockExclusive || t == LockShared }

// String returns "exclusive", "shared" or "invalid".
func (t LockType) String() string {
	switch t {
	case LockExclusive:
		return "exclusive"
	case LockShared:
		return "shared"
	}
	return "invalid"
}

// Assert is the set of assertions passed to a synchronisation call (section
// 11.5.5); values of the MPI 5.0 ABI, combined by bitwise or.
type Assert int32

// The assertions.
const (
	ModeNoCheck   Assert = 1024  // no conflicting lock, or the matching call has been made
	ModeNoPrecede Assert = 2048  // the fence completes no operations of the caller
	ModeNoPut     Assert = 4096  // the local window will not be updated until the next synchronisation
	ModeNoStore   Assert = 8192  // the local window was not stored to since the last synchronisation
	ModeNoSucceed Assert = 16384 // the fence starts no operations of the caller
)

// Flavor says how a window was created (section 11.2.6); values of the MPI 5.0 ABI.
type Flavor int32

// The flavours.
const (
	FlavorCreate   Flavor = 311 // on memory of the user
	FlavorAllocate Flavor = 312 // on memory that the library allocated
	FlavorDynamic  Flavor = 313 // without memory; the user attaches it
	FlavorShared   Flavor = 314 // on memory that the processes of a host share
)

// Valid reports whether f is a flavour.
func (f Flavor) Valid() bool { return f >= FlavorCreate && f <= FlavorShared }

// String returns the flavour's name, or "invalid".
func (f Flavor) String() string {
	if !f.Valid() {
		return "invalid"
	}
	return [...]string{"create", "allocate", "dynamic", "shared"}[f-FlavorCreate]
}

// Model is a window's memory model (section 11.4); values of the MPI 5.0 ABI.
type Model int32

// ModelUnified, in which public and private copy of a window are one, is the
// model of every window of this library.
const ModelUnified Model = 321

// Info holds hints and assertions by key, as the user gives them (section 11.2.1).
type Info map[string]string
