// Package capability takes capabilities of Linux from a process that has no more use for them.
package capability

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Capability is the kernel's number of one.
type Capability uint

// The capabilities that XDP takes.
const (
	NetAdmin Capability = unix.CAP_NET_ADMIN
	NetRaw   Capability = unix.CAP_NET_RAW
	BPF      Capability = unix.CAP_BPF
	Perfmon  Capability = unix.CAP_PERFMON
)

// String returns the kernel's name.
func (c Capability) String() string {
	switch c {
	case NetAdmin:
		return "CAP_NET_ADMIN"
	case NetRaw:
		return "CAP_NET_RAW"
	case BPF:
		return "CAP_BPF"
	case Perfmon:
		return "CAP_PERFMON"
	}
	return fmt.Sprintf("capability %d", uint(c))
}

// Drop takes capabilities from the effective, permitted, inheritable and ambient sets of all
// threads of the process, which never has them again, and returns those that this thread had.
// The bounding set stays: a program that the process executes as root has all that it allows.
// It does not block. On an error all threads have what they had.
func Drop(unwanted ...Capability) (dropped []Capability, err error) {
	s, err := current()
	if err != nil {
		return nil, err
	}
	for _, c := range unwanted {
		word, bit := &s[c/32], uint32(1)<<(c%32)
		if (word.Effective|word.Permitted|word.Inheritable)&bit != 0 {
			dropped = append(dropped, c)
		}
		word.Effective &^= bit
		word.Permitted &^= bit
		word.Inheritable &^= bit
	}
	if len(dropped) == 0 {
		return nil, nil
	}
	// All threads get the same sets. One that had fewer could not take them, and then the runtime
	// ends the process.
	if err := alike(os.DirFS("/proc/self/task")); err != nil {
		return nil, err
	}
	if err := s.apply(); err != nil {
		return nil, err
	}
	return dropped, nil
}

// alike returns an error unless all threads have the same capabilities. tasks has a folder for
// each thread.
func alike(tasks fs.FS) error {
	var first []string
	threads, err := fs.ReadDir(tasks, ".")
	if err != nil {
		return fmt.Errorf("list the threads of this process: %w", err)
	}
	for _, thread := range threads {
		status, err := fs.ReadFile(tasks, path.Join(thread.Name(), "status"))
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
			continue // it has ended
		case err != nil:
			return fmt.Errorf("read the capabilities of thread %s: %w", thread.Name(), err)
		}
		has := lines(status)
		if first == nil {
			first = has
		}
		if !slices.Equal(has, first) {
			return fmt.Errorf("threads of this process have different capabilities, %s and, thread %s, %s: none is taken from any",
				strings.Join(first, " "), thread.Name(), strings.Join(has, " "))
		}
	}
	return nil
}

// lines returns what the status of a thread says of the sets that Drop changes.
func lines(status []byte) (found []string) {
	for line := range bytes.Lines(status) {
		name, value, _ := strings.Cut(string(bytes.TrimSpace(line)), ":")
		if slices.Contains([]string{"CapInh", "CapPrm", "CapEff", "CapAmb"}, name) {
			found = append(found, name+"="+strings.TrimSpace(value))
		}
	}
	return found
}
