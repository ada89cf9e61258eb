package loader

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/xdprma/xdprma/mpierr"
)

// InUseError says that an interface already has an XDP program, which Attach
// never replaces.
type InUseError struct {
	Interface string      // its name
	Program   ProgramInfo // that it has
	Process   string      // which process holds it, by number, name and XDPRMA_RANK; empty if /proc does not show it to the caller
}

func (e *InUseError) Error() string {
	const elsewhere = "give this rank an interface of its own, which may be a macvlan above this one, or the UDP transport (XDPRMA_TRANSPORT=udp)"
	advice := "stop what attached it, or " + elsewhere
	switch {
	case e.Program.Name == dispatcher:
		advice = "have it keep a place for a rank (docs/transports.md says how), which serves one at a time; or " + elsewhere
	case owners[e.Program.Name] != "":
		advice = owners[e.Program.Name] + " attaches it again when it is gone: " + elsewhere
	case e.Program.Name == programOfOurs:
		advice = "an interface serves one rank over XDP, which is another one: give this rank another interface, " +
			"or the UDP transport at any port (XDPRMA_TRANSPORT=udp with XDPRMA_PORT=0)"
	}
	of := ""
	if e.Process != "" {
		of = " of process " + e.Process
	}
	return fmt.Sprintf("interface %s already has XDP program %v%s; %s", e.Interface, e.Program, of, advice)
}

// Free returns nil if Attach finds no XDP program on the interface, or libxdp's dispatcher with a place
// that is kept for one of this library, and else an error of class
// Unsupported in which errors.As finds an InUseError. To name a process it looks through /proc.
func (f Features) Free() error {
	if f.Program == nil || f.Program.place != "" {
		return nil
	}
	return f.inUse()
}

// inUse is the error that the interface has a program.
func (f Features) inUse() error {
	return &mpierr.Error{Op: "attach", Class: mpierr.Unsupported, Rank: mpierr.NoRank,
		Err: &InUseError{Interface: f.Interface, Program: *f.Program, Process: holder(f.Program.ID)}}
}

// holder returns a process that has a program open, or a link that attaches it, or nothing.
func holder(program uint32) string {
	if program == 0 {
		return ""
	}
	says := fmt.Appendf(nil, "\nprog_id:\t%d\n", program)
	for _, number := range namesIn("/proc") {
		if _, err := strconv.Atoi(number); err != nil {
			continue
		}
		process := filepath.Join("/proc", number)
		for _, fd := range namesIn(filepath.Join(process, "fd")) { // none of a process that is not shown to this one
			kind, err := os.Readlink(filepath.Join(process, "fd", fd))
			if err != nil || kind != "anon_inode:bpf-prog" && kind != "anon_inode:bpf_link" {
				continue
			}
			if about, err := os.ReadFile(filepath.Join(process, "fdinfo", fd)); err != nil || !bytes.Contains(about, says) {
				continue
			}
			name, _ := os.ReadFile(filepath.Join(process, "comm")) // it may have ended
			return fmt.Sprintf("%s (%s%s)", number, bytes.TrimSpace(name), rankOf(process))
		}
	}
	return ""
}

// namesIn returns the names in a folder, as far as they can be had. It takes none of the calls that
// docs/confinement.md does not name.
func namesIn(dir string) []string {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	slices.Sort(names)
	return names
}

// rankOf returns which rank the environment says that a process was started as, in words that follow
// its name, or nothing. Only root and the process's user may read that.
func rankOf(process string) string {
	environ, _ := os.ReadFile(filepath.Join(process, "environ"))
	for variable := range strings.SplitSeq(string(environ), "\x00") {
		if value, ok := strings.CutPrefix(variable, "XDPRMA_RANK="); ok {
			if rank, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32); err == nil {
				return fmt.Sprintf(", XDPRMA_RANK=%d", rank)
			}
		}
	}
	return ""
}
