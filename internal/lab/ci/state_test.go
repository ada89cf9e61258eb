package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// TestStateIsOfOneRun has a process of a run, and one of somebody else, each with a run directory.
func TestStateIsOfOneRun(t *testing.T) {
	testenv.NeedsRoot(t)
	work := t.TempDir()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	built, err := os.MkdirTemp("/tmp", "xdprma-state-") // as tests name what they build
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(built) })
	copied := filepath.Join(built, "program")
	if err := os.WriteFile(copied, program, 0o700); err != nil {
		t.Fatal(err)
	}
	start := func(environ ...string) (pid string) {
		c := exec.Command(copied, "1000")
		c.Env = environ
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		pid = strconv.Itoa(c.Process.Pid)
		dir := filepath.Join("/run/xdprma", pid)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Error(err)
		}
		t.Cleanup(func() {
			c.Process.Kill()
			c.Wait()
			os.RemoveAll(dir)
		})
		return pid
	}
	ours, theirs := start("A=b", "GOTMPDIR="+work+"/go"), start("GOTMPDIR="+work+"/gone")
	const contained = "1999999999" // the pid of nothing here
	dir := filepath.Join("/run/xdprma", contained)
	whole, err := os.MkdirTemp("/run", "xdprma-state-") // other tests remove a record that nobody holds
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(whole); os.RemoveAll(dir) })
	if err := os.WriteFile(filepath.Join(whole, "space"), []byte("pid:[1]"), 0o600); err != nil {
		t.Fatal(err)
	}
	holder, err := os.Open(whole)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if err := unix.Flock(int(holder.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(whole, dir); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("../../../.ci/state", work)
	c.Env = append(os.Environ(), "TMPDIR=/tmp")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(string(out), "\n")
	if line := "run directory " + contained; slices.Contains(lines, line) {
		t.Errorf("%q is listed, which is of another PID namespace\n%s", line, out)
	}
	for pid, want := range map[string]bool{ours: true, theirs: false} {
		for _, line := range []string{"process " + pid + " " + copied, "run directory " + pid} {
			if slices.Contains(lines, line) != want {
				t.Errorf("%q is listed: %v, want %v\n%s", line, !want, want, out)
			}
		}
	}
}
