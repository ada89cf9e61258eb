// Package openfiles explains that too many files are open.
package openfiles

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Explain returns err with what to do about it if too many files are open, or else err.
func Explain(err error) error {
	switch {
	case errors.Is(err, unix.EMFILE):
		var limit unix.Rlimit
		_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) // its arguments are right
		return fmt.Errorf("the process has too many open files: raise the limit, ulimit -n, now %d: %w", limit.Cur, err)
	case errors.Is(err, unix.ENFILE):
		return fmt.Errorf("the machine has too many open files: raise the limit, sysctl fs.file-max: %w", err)
	}
	return err
}
