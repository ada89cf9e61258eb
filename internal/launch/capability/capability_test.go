package capability

import (
	"strings"
	"testing"
	"testing/fstest"
)

// Threads with different capabilities are left alone; one that has ended counts for nothing.
func TestThreadsAreAlike(t *testing.T) {
	const has = "Name:\tx\nCapInh:\t0\nCapPrm:\t3\nCapEff:\t%\nCapBnd:\t7\nCapAmb:\t0\n"
	file := func(effective string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(strings.ReplaceAll(has, "%", effective))}
	}
	for name, test := range map[string]struct {
		tasks fstest.MapFS
		err   string
	}{
		"one":       {fstest.MapFS{"1/status": file("3")}, ""},
		"alike":     {fstest.MapFS{"1/status": file("3"), "2/status": file("3")}, ""},
		"ended":     {fstest.MapFS{"1/status": file("3"), "2/comm": file("")}, ""},
		"different": {fstest.MapFS{"1/status": file("3"), "2/status": file("1")}, "thread 2, CapInh=0 CapPrm=3 CapEff=1 CapAmb=0: none is taken"},
	} {
		err := alike(test.tasks)
		if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
			t.Errorf("%s: got %v, want %q", name, err, test.err)
		}
	}
}

// Nothing is asked of the kernel for a capability that the process does not have.
func TestDropOfNothing(t *testing.T) {
	if dropped, err := Drop(); len(dropped) > 0 || err != nil {
		t.Errorf("got %v, %v", dropped, err)
	}
}
