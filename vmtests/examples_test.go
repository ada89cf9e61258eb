package vmtests

import (
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
)

// TestChapterProgram runs the examples of the standard's chapter as their users do: a
// program of its own, started by the launcher. Each of them checks its outcome. Ranks
// that share a host access each other's windows in memory.
func TestChapterProgram(t *testing.T) {
	type ground struct{ transport, perHost, express string }
	for _, g := range testenv.Cases([]ground{{"xdp-native", "2", "on"}},
		ground{"xdp-native", "1", "on"}, ground{"xdp-native", "1", "off"}, ground{"udp", "1", "on"}, ground{"xdp-native", "7", "on"}, ground{"shared", "1", "on"}, ground{"auto", "4", "on"}) {
		some := testenv.Cases([]string{"4"}, "7")
		if g.express == "off" {
			some = some[:1]
		}
		for _, ranks := range some {
			t.Run(g.transport+"/"+g.perHost+" a host/express "+g.express+"/"+ranks, func(t *testing.T) {
				r := launch(t, []string{bootstrap.EnvExpress + "=" + g.express}, "-n", ranks, "--transport", g.transport, "--ranks-per-host", g.perHost, "--",
					programPath(t, "../examples/chapter"), "all")
				over(t, r, 0)
				if ok := "chapter: OK examples=23 ranks=" + ranks + " mode=" + strings.Replace(g.transport, "auto", "shared", 1); !strings.Contains(r.output(), ok) {
					t.Errorf("no %q in the output", ok)
				}
			})
		}
	}
}
