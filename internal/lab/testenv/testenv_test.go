package testenv

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// verdict notes how a test was ended.
type verdict struct {
	testing.TB
	failed, skipped bool
	reason          string
}

func (v *verdict) Helper()       {}
func (v *verdict) Fatal(...any)  { v.failed = true }
func (v *verdict) Skip(a ...any) { v.skipped, v.reason = true, fmt.Sprint(a...) }

// TestMissingFeatureIsNamed asks for features that this kernel has, and for one that no
// kernel has: the latter skips a test wherever it runs, and says what is missing.
func TestMissingFeatureIsNamed(t *testing.T) {
	NeedsRoot(t)
	for _, required := range []string{"", "1"} {
		t.Setenv(requireRoot, required)
		v := &verdict{TB: t}
		NeedsFeature(v, &Feature{"teleportation", "99.0", func() bool { return true }})
		if v.failed || v.reason != MissingFeature+"teleportation (Linux 99.0)" {
			t.Errorf("%s=%s: %+v", requireRoot, required, v)
		}
	}
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(kernel.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*Feature{MultiBuffer, TxBudget, SplitTestRun} {
		var sinceMajor, sinceMinor int
		if _, err := fmt.Sscanf(f.since, "%d.%d", &sinceMajor, &sinceMinor); err != nil {
			t.Fatal(err)
		}
		isNew := major > sinceMajor || major == sinceMajor && minor >= sinceMinor
		if isNew && f.missing() {
			t.Errorf("%s is said to be missing from Linux %d.%d", f.name, major, minor)
		}
	}
}

// A test that the machine lacks something for fails where root is required, and is never passed over.
func TestLackFailsWhereRootIsRequired(t *testing.T) {
	for _, required := range []string{"", "1"} {
		t.Setenv(requireRoot, required)
		v := &verdict{TB: t}
		if Lacks(v, "nothing"); v.failed != (required == "1") || !v.failed && !v.skipped {
			t.Errorf("%s=%s: %+v", requireRoot, required, v)
		}
	}
}
