package loader

import (
	"fmt"

	"github.com/xdprma/xdprma/mpierr"
)

// InUseError says that an interface already has an XDP program, which Attach
// never replaces.
type InUseError struct {
	Interface string      // its name
	Program   ProgramInfo // that it has
}

func (e *InUseError) Error() string {
	advice := "stop what attached it, or use another interface or the UDP transport"
	if e.Program.Name == programOfOurs {
		advice = "another process uses this interface: give each its own, or use the UDP transport"
	}
	return fmt.Sprintf("interface %s already has XDP program %v; %s", e.Interface, e.Program, advice)
}

func inUse(op string, f Features) error {
	return &mpierr.Error{Op: op, Class: mpierr.Unsupported, Rank: mpierr.NoRank,
		Err: &InUseError{Interface: f.Interface, Program: *f.Program}}
}
