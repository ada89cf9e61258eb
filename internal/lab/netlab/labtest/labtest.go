// Package labtest makes networks for tests.
package labtest

import (
	"fmt"
	"os"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/testenv"
)

// Main runs the tests of a package, and exits: with a failure if a network of them remains.
func Main(m *testing.M) {
	code := m.Run()
	if leaks := netlab.Leaks(); len(leaks) > 0 {
		fmt.Fprintln(os.Stderr, "left behind:", leaks)
		code = 1
	}
	os.Exit(code)
}

// New makes a network that lives as long as the test, which needs root. Whatever remains of
// it fails the test.
func New(t testing.TB, c netlab.Config) *netlab.Lab {
	t.Helper()
	testenv.NeedsRoot(t)
	lab, err := netlab.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	return lab
}
