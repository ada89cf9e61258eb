package vmtests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// TestMain runs a rank's program if the environment names one. Otherwise it runs
// the tests, and fails if they left anything behind.
func TestMain(m *testing.M) {
	if name := os.Getenv(envProgram); name != "" {
		if err := errors.Join(dispatch(), giveUp()); err != nil {
			fmt.Println(err)
			os.Exit(4)
		}
		if os.Getenv(envOddThread) != "" {
			if err := addOddThread(); err != nil {
				fmt.Println(err)
				os.Exit(4)
			}
		}
		os.Exit(runProgram(name))
	}
	os.Exit(func() int {
		before := inventory()
		status := m.Run()
		removeBuilt()
		left := netlab.Leaks()
		for _, thing := range inventory() {
			if !slices.Contains(before, thing) {
				left = append(left, thing)
			}
		}
		if len(left) > 0 {
			fmt.Fprintf(os.Stderr, "left behind by the tests: %q\n", left)
			return 1
		}
		return status
	}())
}

// strayLink matches the names that tests give links. Other programs of the machine, such as a container
// engine, may make links in this process's network namespace at any time, and nothing says who made one.
var strayLink = regexp.MustCompile(`^(xr[0-9]+|peer|bridge|tagged)$`)

// inventory lists this process's file descriptors and children, and links in its
// network namespace that tests may have made.
func inventory() []string {
	if r, w, err := os.Pipe(); err == nil { // the runtime opens its own descriptors with the first pollable file
		r.Close()
		w.Close()
	}
	var all []string
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && !strings.HasPrefix(to, "/proc/") {
			all = append(all, "fd "+fd.Name()+" "+to)
		}
	}
	children, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range children {
		pids, _ := os.ReadFile(file)
		for _, pid := range strings.Fields(string(pids)) {
			all = append(all, "child "+pid)
		}
	}
	links, _ := netlink.LinkList()
	for _, l := range links {
		if strayLink.MatchString(l.Attrs().Name) {
			all = append(all, "link "+l.Attrs().Name)
		}
	}
	return all
}

// A link that somebody else makes while the tests run is not taken for theirs.
func TestStrayLinks(t *testing.T) {
	for name, want := range map[string]bool{"xr0": true, "xr12": true, "peer": true, "bridge": true, "tagged": true,
		"lo": false, "veth1a2b3c": false, "docker0": false, "br-0a1b": false, "xrm": false} {
		if got := strayLink.MatchString(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// built is the programs that tests start, built when the first test asks for one.
var built struct {
	sync.Mutex
	dir string
}

// programPath returns the path of the program of a package.
func programPath(t *testing.T, pkg string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "xdprma-vmtests-")
		if err != nil {
			t.Fatal(err)
		}
		built.dir = dir
	}
	path := filepath.Join(built.dir, filepath.Base(pkg))
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if err := testenv.Build(pkg, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func removeBuilt() {
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
}
