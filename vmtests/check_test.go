package vmtests

import (
	"testing"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
)

// The program of the other tests is in order, so checking mode finds nothing in
// it, and changes nothing.
func TestCheckingMode(t *testing.T) {
	lab := labtest.New(t, netlab.Config{Ranks: 3})
	j := start(t, lab, spec{program: "exchange", transports: []string{"xdp-native", "xdp-native", "udp"}, env: []string{"XDPRMA_CHECK=1"}})
	j.finish()
	checkNothingLost(j)
	for _, r := range j.ranks {
		r.rewind()
		if n := j.counters(r).Conflicts; n != 0 {
			t.Errorf("rank %d found %d conflicts", r.n, n)
		}
	}
}
