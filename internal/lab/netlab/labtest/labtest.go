// Package labtest makes networks for tests.
package labtest

import (
	"testing"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/testenv"
)

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
