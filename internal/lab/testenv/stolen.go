package testenv

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tellStolen has t, if it fails, say for how long the hypervisor kept each processor from this machine
// meanwhile: a processor that is away for seconds looks like frames that stay in the kernel.
func tellStolen(t testing.TB) {
	before, begin := stolen(), time.Now()
	t.Cleanup(func() {
		if now := stolen(); t.Failed() && len(now) == len(before) {
			for i := range now {
				now[i] -= before[i]
			}
			t.Logf("the hypervisor kept the processors from this machine for %v, in the %v since the test began", now, time.Since(begin).Round(time.Millisecond))
		}
	})
}

// stolen returns for how long each processor has been away since the machine started (proc_stat(5), field "steal").
func stolen() (times []time.Duration) {
	const tick, steal = 10 * time.Millisecond, 8
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(stat)) {
		f := strings.Fields(line)
		if len(f) <= steal || !strings.HasPrefix(f[0], "cpu") || f[0] == "cpu" {
			continue
		}
		n, err := strconv.ParseInt(f[steal], 10, 64)
		if err != nil {
			return nil
		}
		times = append(times, time.Duration(n)*tick)
	}
	return times
}
