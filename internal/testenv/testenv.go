// Package testenv tells tests whether the machine gives them what they need, and how
// much to do.
package testenv

import (
	"os"
	"testing"
)

// requireRoot is the environment variable that, set to 1, turns the lack of
// root from a reason to skip a test into a failure. CI sets it.
const requireRoot = "XDPRMA_REQUIRE_ROOT"

// NeedsRoot skips the test, with the reason, unless it runs as root. When
// XDPRMA_REQUIRE_ROOT is 1 it fails the test instead.
func NeedsRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv(requireRoot) == "1" {
		t.Fatal("this test needs root, and " + requireRoot + "=1 forbids skipping it")
	}
	t.Skip("this test needs root to create network namespaces or load BPF programs")
}

// Seeds returns how many seeds a test goes through: all, or few with -short, as under
// the race detector, which has little more to find in more of the same.
func Seeds(all, few uint64) uint64 {
	if testing.Short() {
		return few
	}
	return all
}
