package vmtests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/xdprma/xdprma/internal/netlab"
)

// TestMain runs a rank's program if the environment names one. Otherwise it runs
// the tests, and fails if they left anything behind.
func TestMain(m *testing.M) {
	if name := os.Getenv(envProgram); name != "" {
		if err := giveUp(); err != nil {
			fmt.Println(err)
			os.Exit(4)
		}
		os.Exit(runProgram(name))
	}
	os.Exit(func() int {
		before := inventory()
		status := m.Run()
		removeLauncher()
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

// inventory lists this process's file descriptors, children, and the links of its
// network namespace.
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
		all = append(all, "link "+l.Attrs().Name)
	}
	return all
}

// launcher is the xdprma command, built when the first test asks for it.
var launcher struct {
	sync.Once
	dir string
	err error
}

func launcherPath(t *testing.T) string {
	t.Helper()
	launcher.Do(func() {
		if launcher.dir, launcher.err = os.MkdirTemp("", "xdprma-vmtests-"); launcher.err != nil {
			return
		}
		out, err := exec.Command("go", "build", "-o", filepath.Join(launcher.dir, "xdprma"), "../cmd/xdprma").CombinedOutput()
		if err != nil {
			launcher.err = fmt.Errorf("build xdprma: %w\n%s", err, out)
		}
	})
	if launcher.err != nil {
		t.Fatal(launcher.err)
	}
	return filepath.Join(launcher.dir, "xdprma")
}

func removeLauncher() {
	if launcher.dir != "" {
		os.RemoveAll(launcher.dir)
	}
}
