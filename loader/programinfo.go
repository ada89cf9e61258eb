package loader

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
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

	place string // in libxdp's dispatcher, that is kept for the classifier, by placeIn
}

// owners are programs that attach XDP programs of these names, and keep them attached.
var owners = map[string]string{"cil_xdp_entry": "Cilium", "bpf_xdp_entry": "Cilium"}

// attachModes names the kernel's modes.
var attachModes = map[uint32]string{
	nl.XDP_ATTACHED_DRV: "native", nl.XDP_ATTACHED_SKB: "generic", nl.XDP_ATTACHED_HW: "offload", xdpAttachedMulti: "several modes",
}

const xdpAttachedMulti = 4 // XDP_ATTACHED_MULTI

// inspect describes the program with an id on an interface, attached in one of the kernel's modes,
// as far as the caller may know.
func inspect(ifindex int, id, mode uint32) *ProgramInfo {
	info := &ProgramInfo{ID: id, Name: programName(id), Mode: attachModes[mode]}
	switch {
	case info.Name == dispatcher: // whoever may read the name may see the links, too
		names := components(id)
		info.Of = dispatcherOf(names)
		if !slices.Contains(names, programOfOurs) {
			info.place = placeIn(ifindex, id)
		}
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
	return nameOf(p.FD())
}

// Describe describes the program with an id that an interface has in a mode, both as the kernel's
// attribute IFLA_XDP says, and names a process that has it open, as far as the caller may know. It looks
// through /proc.
func Describe(id, mode uint32) (p ProgramInfo, process string) {
	p = ProgramInfo{ID: id, Name: programName(id), Mode: attachModes[mode]}
	if owner := owners[p.Name]; owner != "" {
		p.Of = "of " + owner
	} else if p.Name == dispatcher {
		p.Of = "libxdp's dispatcher"
	}
	return p, holder(id)
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
