package testenv

import (
	"fmt"
	"strings"
	"testing"
)

// ending is a test that has ended, and what it said.
type ending struct {
	testing.TB
	failed bool
	ends   func()
	said   string
}

func (e *ending) Cleanup(f func())             { e.ends = f }
func (e *ending) Failed() bool                 { return e.failed }
func (e *ending) Logf(format string, a ...any) { e.said += fmt.Sprintf(format, a...) }

// Only a test that fails speaks of processors that were away.
func TestFailureTellsStolenTime(t *testing.T) {
	if len(stolen()) == 0 {
		t.Fatal("/proc/stat tells nothing of the processors")
	}
	for _, failed := range []bool{false, true} {
		e := &ending{TB: t, failed: failed}
		tellStolen(e)
		e.ends()
		if strings.Contains(e.said, "hypervisor") != failed {
			t.Errorf("failed %v: said %q", failed, e.said)
		}
	}
}
