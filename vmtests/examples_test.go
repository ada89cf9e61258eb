package vmtests

import (
	"strings"
	"testing"
)

// TestChapterProgram runs the examples of the standard's chapter as their users do: a
// program of its own, started by the launcher. Each of them checks its outcome. Ranks
// that share a host access each other's windows in memory.
func TestChapterProgram(t *testing.T) {
	for _, g := range []struct{ transport, perHost string }{{"xdp-native", "1"}, {"udp", "1"}, {"xdp-native", "7"}, {"xdp-native", "2"}} {
		for _, ranks := range cases([]string{"4"}, "2", "7") {
			t.Run(g.transport+"/"+g.perHost+" a host/"+ranks, func(t *testing.T) {
				r := launch(t, nil, "-n", ranks, "--transport", g.transport, "--ranks-per-host", g.perHost, "--",
					programPath(t, "../examples/chapter"), "all")
				over(t, r, 0)
				if ok := "chapter: OK examples=23 ranks=" + ranks + " mode=" + g.transport + "\n"; !strings.Contains(r.output(), ok) {
					t.Errorf("no %q in the output", ok)
				}
			})
		}
	}
}
