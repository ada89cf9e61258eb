package loader

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/mpierr"
)

// dispatcher is the name of the program by which libxdp has several share an interface. It
// calls functions prog0, prog1 and so on, each of which a program of them replaces.
const dispatcher = "xdp_dispatcher"

// placeholder is the name of a program that keeps a function of a dispatcher for the classifier.
// libxdp makes a dispatcher with exactly as many functions as it has programs.
const placeholder = "xdprma_slot"

// dispatchers returns the directory in which libxdp pins what its dispatchers call.
func dispatchers() string {
	return filepath.Join(cmp.Or(os.Getenv("LIBXDP_BPFFS"), "/sys/fs/bpf"), "xdp")
}

// components returns the names of the programs that a dispatcher calls, in their order. It asks
// for the links that put each into its function of the dispatcher: these are there for all
// processes, and their pins only in mounts that have libxdp's BPF file system.
func components(dispatcher uint32) (names []string) {
	type component struct {
		function uint32 // by its BTF id; they are in order
		program  ebpf.ProgramID
	}
	var found []component
	links := &link.Iterator{}
	defer links.Close()
	for links.Next() {
		info, err := links.Link.Info()
		if err != nil {
			continue // it has gone
		}
		if t := info.Tracing(); t != nil && t.TargetObjectId == dispatcher {
			found = append(found, component{uint32(t.TargetBtfId), info.Program})
		}
	}
	slices.SortFunc(found, func(a, b component) int { return cmp.Compare(a.function, b.function) })
	for _, c := range found {
		names = append(names, programName(uint32(c.program)))
	}
	return names
}

// dispatcherOf says what a dispatcher is that calls programs of these names.
func dispatcherOf(names []string) string {
	text := fmt.Sprintf("libxdp's dispatcher; programs in it: %d", len(names))
	for _, name := range names {
		text += fmt.Sprintf(", %q", name)
	}
	return text
}

// placeIn returns the path, without its ending, of the pins of the placeholder in the dispatcher
// of an interface, or nothing.
func placeIn(ifindex int, dispatcher uint32) string {
	programs, _ := filepath.Glob(filepath.Join(dispatchers(), fmt.Sprintf("dispatch-%d-%d", ifindex, dispatcher), "prog?-prog")) // libxdp has ten at most
	for _, path := range programs {
		p, err := ebpf.LoadPinnedProgram(path, nil)
		if err != nil {
			continue
		}
		info, err := p.Info()
		_ = p.Close()
		if err == nil && info.Name == placeholder {
			return path[:len(path)-len("-prog")]
		}
	}
	return ""
}

// place is a function of a dispatcher that the classifier replaces.
type place struct {
	in       *ebpf.Program
	function string
	pin      string // of the link by which the placeholder has it, or had
}

// open returns the place that a dispatcher has for a program in some mode.
func (p *ProgramInfo) open(mode Mode) (*place, error) {
	if p.Mode != mode.String() {
		return nil, mpierr.New("attach", mpierr.Unsupported, mpierr.NoRank,
			"libxdp's dispatcher, which has a place for the program, is in %s mode: use the transport xdp-%s", p.Mode, p.Mode)
	}
	in, err := ebpf.NewProgramFromID(ebpf.ProgramID(p.ID))
	if err != nil {
		return nil, mpierr.New("attach", mpierr.Unsupported, mpierr.NoRank, "open libxdp's dispatcher: %w", err)
	}
	return &place{in: in, function: filepath.Base(p.place), pin: p.place + "-link"}, nil
}

// shape has a program load as one that fits into the place.
func (p *place) shape(spec *ebpf.ProgramSpec) {
	spec.Type, spec.AttachType, spec.Flags = ebpf.Extension, ebpf.AttachNone, 0
	spec.AttachTarget, spec.AttachTo = p.in, p.function
}

// placeFree is how long the placeholder may keep its place after its link is gone: the kernel may still
// have readers of the pin.
const placeFree = 2 * time.Second

// attach puts a program into the place, under the lock that libxdp has. The link is not pinned: when
// it goes, frames pass to the dispatcher's next program, and the place is free for another rank. A
// symbolic link stays in the stead of the placeholder's, since libxdp removes a file of that name.
func (p *place) attach(program *ebpf.Program) (link.Link, error) {
	dir, err := os.Open(dispatchers())
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir.Name(), err)
	}
	deadline := time.Now()
	theirs, err := link.LoadPinnedLink(p.pin, nil)
	if err == nil {
		err = os.Remove(p.pin)
		_ = theirs.Close()
		deadline = deadline.Add(placeFree)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := os.Symlink(placeholder, p.pin); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("the dispatcher was replaced meanwhile, try again: %w", err)
	}
	for {
		l, err := link.AttachFreplace(p.in, p.function, program)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return l, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
