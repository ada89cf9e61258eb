package tier

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// Memory that an XDP program reaches is there at once and is never swapped, so windows take
// no more than a part of what is left to this process.
const (
	shareOfRoom  = 4       // a window may have a quarter of what is left
	alwaysLeft   = 1 << 20 // bytes that no look at the machine is worth
	cgroupFS     = "sys/fs/cgroup"
	memoryFS     = cgroupFS + "/memory" // of the first version
	reclaimable  = "inactive_file"
	reclaimable1 = "total_inactive_file"
)

// memoryLeft returns how many bytes the machine and the control groups of this process
// still have, page cache that nobody uses included. root is the file system.
func memoryLeft(root fs.FS) int {
	left := math.MaxInt
	if n, ok := field(root, "proc/meminfo", "MemAvailable:"); ok {
		left = n << 10
	}
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) < 3:
		case parts[0] == "0": // the second version
			left = min(left, groupLeft(root, cgroupFS, parts[2], "memory.max", "memory.current", reclaimable))
		case parts[1] == "memory":
			left = min(left, groupLeft(root, memoryFS, parts[2], "memory.limit_in_bytes", "memory.usage_in_bytes", reclaimable1))
		}
	}
	return left
}

// groupLeft returns what a control group and those around it still have. In a container
// the group may be at the root of the file system, whatever its path is outside.
func groupLeft(root fs.FS, mount, group, limit, usage, cache string) int {
	left := math.MaxInt
	for at := path.Clean("/" + group); ; at = path.Dir(at) {
		dir := path.Join(mount, at)
		most, limited := number(root, path.Join(dir, limit))
		used, known := number(root, path.Join(dir, usage))
		if limited && known {
			unused, _ := field(root, path.Join(dir, "memory.stat"), cache)
			left = min(left, max(0, most-used+unused))
		}
		if at == "/" {
			return left
		}
	}
}

// number returns the number that a file consists of; false for another text.
func number(root fs.FS, name string) (int, bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	return n, err == nil
}

// field returns the number after a word at the start of a line.
func field(root fs.FS, name, word string) (int, bool) {
	text, _ := fs.ReadFile(root, name)
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		if fields := strings.Fields(s.Text()); len(fields) >= 2 && fields[0] == word {
			n, err := strconv.Atoi(fields[1])
			return n, err == nil
		}
	}
	return 0, false
}
