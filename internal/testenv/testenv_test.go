package testenv

import "testing"

// verdict notes how a test was ended.
type verdict struct {
	testing.TB
	failed, skipped bool
}

func (v *verdict) Helper()      {}
func (v *verdict) Fatal(...any) { v.failed = true }
func (v *verdict) Skip(...any)  { v.skipped = true }

// A test that the machine lacks something for fails where root is required, and is never passed over.
func TestLacks(t *testing.T) {
	for _, required := range []string{"", "1"} {
		t.Setenv(requireRoot, required)
		v := &verdict{TB: t}
		if Lacks(v, "nothing"); v.failed != (required == "1") || !v.failed && !v.skipped {
			t.Errorf("%s=%s: %+v", requireRoot, required, v)
		}
	}
}
