package tier

import (
	"math"
	"os"
	"testing"
	"testing/fstest"
)

func TestMemoryLeft(t *testing.T) {
	const free = "MemTotal: 16000 kB\nMemAvailable:    1000 kB\n"
	for _, test := range []struct {
		name  string
		files map[string]string
		want  int
	}{
		{"nothing is known", nil, math.MaxInt},
		{"the machine", map[string]string{"proc/meminfo": free}, 1000 << 10},
		{"no limit", map[string]string{"proc/meminfo": free, "proc/self/cgroup": "0::/a\n",
			"sys/fs/cgroup/a/memory.max": "max\n", "sys/fs/cgroup/a/memory.current": "5\n"}, 1000 << 10},
		{"its group", map[string]string{"proc/meminfo": free, "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "9000\n", "sys/fs/cgroup/a/b/memory.current": "5000\n",
			"sys/fs/cgroup/a/b/memory.stat": "anon 1\ninactive_file 300\n"}, 4300},
		{"a group around it", map[string]string{"proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "9000\n", "sys/fs/cgroup/a/b/memory.current": "5000\n",
			"sys/fs/cgroup/a/memory.max": "9000\n", "sys/fs/cgroup/a/memory.current": "9000\n"}, 0},
		{"in a container", map[string]string{"proc/self/cgroup": "0::/elsewhere\n",
			"sys/fs/cgroup/memory.max": "9000\n", "sys/fs/cgroup/memory.current": "1000\n"}, 8000},
		{"the first version", map[string]string{"proc/self/cgroup": "9:name=systemd:/\n4:memory:/x\n0::/\nodd",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "700\n", "sys/fs/cgroup/memory/x/memory.usage_in_bytes": "100\n",
			"sys/fs/cgroup/memory/x/memory.stat": "total_inactive_file 50\n"}, 650},
	} {
		root := fstest.MapFS{}
		for name, text := range test.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := memoryLeft(root); got != test.want {
			t.Errorf("%s: %d bytes, want %d", test.name, got, test.want)
		}
	}
	if n := memoryLeft(os.DirFS("/")); n <= 0 {
		t.Errorf("this machine has %d bytes", n)
	}
}
