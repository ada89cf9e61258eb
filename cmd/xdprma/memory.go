package main

import (
	"os"
	"strconv"
	"strings"
)

// lackOfMemory goes on after how a rank was killed, where the kernel may have done so.
const lackOfMemory = "; the kernel has ended a process of this machine for lack of memory meanwhile"

// memoryKills returns how many processes of this machine the kernel has ended for lack of memory, as far as
// it says.
func memoryKills() (n int) {
	text, _ := os.ReadFile("/proc/vmstat")
	for line := range strings.Lines(string(text)) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ = strconv.Atoi(strings.TrimSpace(count))
		}
	}
	return n
}
