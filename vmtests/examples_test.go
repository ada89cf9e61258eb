package vmtests

import (
	"strings"
	"testing"
)

// TestChapterProgram runs the examples of the standard's chapter as their users do: a
// program of its own, started by the launcher. Each of them checks its outcome. Ranks
// that are told that they share a host access each other's windows in memory.
func TestChapterProgram(t *testing.T) {
	for _, transport := range []string{"xdp-native", "udp"} {
		for _, ranks := range []string{"2", "4"} {
			for _, env := range []string{"XDPRMA_FRAMES=1", "XDPRMA_HOST=here"} {
				t.Run(transport+" "+ranks+" "+env, func(t *testing.T) {
					r := launch(t, nil, "-n", ranks, "--transport", transport, "--", "env", env, programPath(t, "../examples/chapter"), "all")
					over(t, r, 0)
					if ok := "chapter: OK examples=23 ranks=" + ranks + " mode=" + transport + "\n"; !strings.Contains(r.output(), ok) {
						t.Errorf("no %q in the output", ok)
					}
				})
			}
		}
	}
}
