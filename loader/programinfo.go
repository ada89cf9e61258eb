package loader

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink/nl"
)

// ProgramInfo describes an attached XDP program.
type ProgramInfo struct {
	ID   uint32 // 0 if several are attached
	Name string // empty if the caller may not know (it takes CAP_SYS_ADMIN)
	Mode string // "native", "generic" or "offload"; "several modes" where each has a program; empty if unknown
	// Of says in words to what the program belongs, and if it is libxdp's dispatcher, which
	// programs it calls in its turn. It is empty if that is unknown.
	Of string
}

// dispatcher is the name of the program by which libxdp has several share an interface.
const dispatcher = "xdp_dispatcher"

// owners are programs that attach XDP programs of these names, and keep them attached.
var owners = map[string]string{"cil_xdp_entry": "Cilium", "bpf_xdp_entry": "Cilium"}

// attachModes names the kernel's modes.
var attachModes = map[uint32]string{
	nl.XDP_ATTACHED_DRV: "native", nl.XDP_ATTACHED_SKB: "generic", nl.XDP_ATTACHED_HW: "offload", xdpAttachedMulti: "several modes",
}

const xdpAttachedMulti = 4 // XDP_ATTACHED_MULTI

// inspect describes the program with an id, attached in one of the kernel's modes, as far as
// the caller may know.
func inspect(id, mode uint32) *ProgramInfo {
	info := &ProgramInfo{ID: id, Name: programName(id), Mode: attachModes[mode]}
	switch {
	case info.Name == dispatcher: // whoever may read the name may see the links, too
		info.Of = dispatcherOf(components(id))
	case owners[info.Name] != "":
		info.Of = "of " + owners[info.Name]
	}
	return info
}

// programName resolves a program's id, or returns nothing.
func programName(id uint32) string {
	if id == 0 {
		return ""
	}
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return ""
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return ""
	}
	return info.Name
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

// String returns the program's id and name, its mode, and to what it belongs.
func (p ProgramInfo) String() string {
	b := &strings.Builder{}
	if p.Name == "" {
		fmt.Fprintf(b, "%d (name unknown)", p.ID)
	} else {
		fmt.Fprintf(b, "%d %q", p.ID, p.Name)
	}
	switch p.Mode {
	case "":
	case attachModes[xdpAttachedMulti]:
		b.WriteString(" and others, one in each of several modes")
	default:
		b.WriteString(" in " + p.Mode + " mode")
	}
	if p.Of != "" {
		b.WriteString(" (" + p.Of + ")")
	}
	return b.String()
}
