package loader

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// filesForLoading is how many files are open while a program is loaded, at most, besides its
// maps and itself: its BTF, the map inside another, one for what the library tries, one for
// the attached link.
const filesForLoading = 4

// needsFiles returns an error unless the process can open n more files.
//
// The BPF library tries what the kernel knows, and takes any failure for a kernel that is
// too old. It remembers this for as long as the process lives.
func needsFiles(n int) (err error) {
	opened := make([]int, 0, n)
	for err == nil && len(opened) < n {
		var fd int
		if fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err == nil {
			opened = append(opened, fd)
		}
	}
	if err != nil {
		err = fmt.Errorf("open %d files, of which %d can be had: %w", n, len(opened), err)
	}
	return errors.Join(err, closeFiles(opened))
}

func closeFiles(fds []int) error {
	var errs []error
	for _, fd := range fds {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}
