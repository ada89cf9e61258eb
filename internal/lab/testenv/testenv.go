// Package testenv tells tests whether the machine gives them what they need, and how
// much to do.
package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Limit is how long a test waits for what has to happen. Only a hang reaches it: it is far
// from what anything takes on a machine that is ten times slower, or busy with other work.
// A wait for work of many steps begins anew with each step.
const Limit = 5 * time.Minute

// requireRoot is the environment variable that, set to 1, turns whatever a machine lacks
// from a reason to skip a test into a failure. CI sets it.
const requireRoot = "XDPRMA_REQUIRE_ROOT"

// envPrograms is the environment variable that names a folder of programs that are built already.
const envPrograms = "XDPRMA_TEST_PROGRAMS"

// NeedsRoot ends the test as Lacks does unless it runs as root.
func NeedsRoot(t testing.TB) {
	t.Helper()
	// Set by make and by sudo: so Go's test cache keeps results as root apart.
	_, _ = os.Getenv("XDPRMA_TEST_UID"), os.Getenv("SUDO_UID")
	if os.Geteuid() != 0 {
		Lacks(t, "this test needs root to create network namespaces or load BPF programs")
	}
	tellStolen(t)
}

// Lacks skips a test that the machine does not have enough for, with the reason. When
// XDPRMA_REQUIRE_ROOT is 1 it fails the test instead.
func Lacks(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv(requireRoot) == "1" {
		t.Fatal(reason + "; " + requireRoot + "=1 forbids skipping it")
	}
	t.Skip(reason)
}

// HasRun skips a test in a process that another test starts, because it would do again
// what it did in the process of that test.
func HasRun(t testing.TB) { t.Skip("this test has run in the process that started this one") }

// OpenFiles counts the descriptors of this process.
func OpenFiles(t testing.TB) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// NeedsCommand ends the test as Lacks does unless a program of the operating system's
// package is installed.
func NeedsCommand(t testing.TB, program, pkg string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		Lacks(t, "this test needs "+program+" (apt-get install --no-install-recommends "+pkg+")")
	}
}

// buildFlags has Build compile what it is asked for as the test itself was compiled.
var buildFlags = []string{"-ldflags=-w"}

// Build compiles the program in directory pkg to a file, for the race detector if the test
// runs under it. Go's test cache, which knows nothing of that program, runs the test again
// once a file in pkg changes. On a machine without Go, Build copies the program from the folder
// that XDPRMA_TEST_PROGRAMS names.
func Build(pkg, file string) error {
	if built := os.Getenv(envPrograms); built != "" {
		program, err := os.ReadFile(filepath.Join(built, filepath.Base(pkg)))
		if err != nil {
			return err
		}
		return os.WriteFile(file, program, 0o755)
	}
	sources, err := filepath.Glob(filepath.Join(pkg, "*"))
	if err != nil {
		return err
	}
	for _, name := range sources {
		if _, err := os.Stat(name); err != nil {
			return err
		}
	}
	if out, err := exec.Command("go", slices.Concat([]string{"build"}, buildFlags, []string{"-o", file, pkg})...).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// ForAll lets everybody enter dir, a folder of t.TempDir, for a test that starts a program as
// somebody else.
func ForAll(t testing.TB, dir string) {
	t.Helper()
	for top := filepath.Clean(os.TempDir()); dir != top && len(dir) > 1; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// Await waits until done says so, for something that others bring about, and ends the test
// when that does not happen.
func Await(t testing.TB, what string, done func() bool) {
	t.Helper()
	const longest = 5 * time.Millisecond
	pause := longest / 64
	for end := time.Now().Add(Limit); !done(); pause = min(2*pause, longest) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", Limit, what)
		}
		time.Sleep(pause)
	}
}
