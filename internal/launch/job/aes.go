//go:build !purego

package job

import (
	"runtime"

	"golang.org/x/sys/cpu"
)

// computesAES reports whether the processor has instructions for all that AES-GCM needs. Without them
// it would be slow, and the time that it takes would tell of the key.
func computesAES() bool {
	switch runtime.GOARCH {
	case "amd64":
		return cpu.X86.HasAES && cpu.X86.HasPCLMULQDQ && cpu.X86.HasSSE41 && cpu.X86.HasSSSE3
	case "arm64":
		return cpu.ARM64.HasAES && cpu.ARM64.HasPMULL
	}
	return false
}
