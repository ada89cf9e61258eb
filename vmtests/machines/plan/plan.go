// Package plan is the language between the host, which boots machines, and the guest, which
// carries out steps in one and tells how they went.
package plan

import "time"

const (
	// Job is the file in a machine in which the guest finds its Steps.
	Job = "/job.json"
	// Modules is the folder of the kernel's modules, whose names begin with the order of their loading.
	Modules = "/modules"
	// Report is the variable of the guest's environment that names the device to which it writes
	// Results, as JSON. The kernel's command line sets it.
	Report = "GUEST_REPORT"
)

// Interface is the name of each rank's network interface, in a namespace of its own.
const Interface = "eth"

// Step is what runs in a machine at a time: one process, or one for each rank of a job.
type Step struct {
	Name  string
	Pair  *Pair      // what joins two ranks; nil: there is one process, with an empty network
	Args  [][]string // the program of each process, with its arguments
	Env   []string   // beside what a rank is told
	Dir   string     // where it runs
	After string     // rank 0 starts once rank 1 has printed this; empty: at once
	Limit time.Duration
}

// Pair is two network interfaces that are joined, each in a namespace.
type Pair struct {
	Veth bool // made by the kernel; otherwise the machine's NICs
	MTU  int
	VLAN int  // the ranks' interfaces are VLAN interfaces on top, with this number; 0: none
	RDMA bool // each has a device of Soft-RoCE, rxe0 and rxe1
}

// Result is what came of a step.
type Result struct {
	Step   string
	Failed string // why; empty: it ended with status 0
	Output string // of all its processes, one after the other
	Took   time.Duration
}
