package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// seesMachine lists the files that look at what is of the whole machine, each with what it tells its own
// by. Any job or test may be there at the same time.
var seesMachine = map[string]string{
	"loader/dispatcher.go":             "links, by the id of the dispatcher that they are in",
	"loader/inuse.go":                  "processes, by the id of the program that they have",
	"internal/lab/netlab/namespace.go": "names of namespaces, each given by netlab",
	"internal/lab/netlab/program.go":   "links, by the id of the program of the lab's interface",
	"internal/lab/netlab/stale.go":     "namespaces and records, by pid, when that process started, and its PID namespace",
	"internal/lab/ci/state_test.go":    "records, by the pids of processes that it has started",
	"cmd/xdprma/guard.go":              "processes, by the job and the rank in their environment",
	"cmd/xdprma/info.go":               "interfaces, all of which it shows",
	"cmd/xdprma/remote_test.go":        "processes, by a file in the run's own folder; a namespace of its lab",
	"deploy/kubernetes/pod_test.go":    "a namespace of its lab",
	"vmtests/dispatcher_test.go":       "a folder to mount at, in mounts of its own",
	"vmtests/faults_test.go":           "a namespace of its lab",
	"vmtests/main_test.go":             "interfaces, by the names that its tests give",
	"userspace/example_test.go":        "pinned maps, by the folder of the job",
	"vmtests/machines/guest/main.go":   "a virtual machine, which is its own",
	"vmtests/machines/guest/pair.go":   "interfaces of a virtual machine, which is its own",
	"internal/device/agent/account.go": "maps, by the ids of those that its guests have",
	"internal/device/agent/message.go": "the agent of the host, which serves all; tests name their own, or none",
	"internal/device/address.go":       "interfaces, by the address that the rank is to have",
}

// machineCalls list what is of the whole machine, or of a network namespace that may be
// the machine's.
var machineCalls = []string{"link.Iterator", "ebpf.ProgramGetNextID", "ebpf.MapGetNextID", "net.Interfaces", "netlink.LinkList"}

// machinePaths begin the names of what is of the whole machine.
var machinePaths = []string{"/proc/[", "/proc/*", "/run/netns", "/run/xdprma", "/sys/fs/bpf"}

// shared checks that only files which are known to look at what is of the whole machine do so.
func shared(f *file) (faults []string) {
	if _, known := seesMachine[f.name]; known || f.generated || f.dir() == "internal/lab/archtest" {
		return nil
	}
	fault := func(at token.Pos, what string) {
		faults = append(faults, fmt.Sprintf("%v: %s shows what other jobs and tests have; tell by what this one knows its own, in seesMachine",
			f.fset.Position(at), what))
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if of, ok := n.X.(*ast.Ident); ok && slices.Contains(machineCalls, of.Name+"."+n.Sel.Name) {
				fault(n.Pos(), of.Name+"."+n.Sel.Name)
			}
		case *ast.BasicLit:
			if n.Kind != token.STRING {
				break
			}
			text, _ := strconv.Unquote(n.Value) // the parser has checked it
			words := strings.Fields(text)
			begins := func(path string) bool { return strings.HasPrefix(text, path) }
			if text == "/proc" || slices.ContainsFunc(machinePaths, begins) {
				fault(n.Pos(), text)
			}
			if len(words) > 0 && slices.Contains([]string{"pkill", "killall", "pgrep"}, words[0]) {
				fault(n.Pos(), words[0])
			}
		}
		return true
	})
	return faults
}

// Each file of seesMachine looks at the machine: one that no longer does has no place there.
func TestSeesMachineIsTrue(t *testing.T) {
	seen := map[string]bool{}
	eachSource(t, func(f *file) {
		if _, listed := seesMachine[f.name]; listed {
			seen[f.name] = true
			unlisted := *f
			unlisted.name = "listed/nowhere.go"
			if len(shared(&unlisted)) == 0 {
				t.Errorf("%s does not look at the machine", f.name)
			}
		}
	})
	for name, by := range seesMachine {
		if !seen[name] || by == "" {
			t.Errorf("%s is there: %v; it tells its own by %q", name, seen[name], by)
		}
	}
}
