package vmtests

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/bootstrap"
	"github.com/xdprma/xdprma/internal/netlab"
)

// Ranks behind XDP hear their peers on whichever queue the peers' frames arrive,
// with nothing set, and with a limit on the queues too.
func TestXDPReceivesOnEveryQueue(t *testing.T) {
	for _, queues := range []int{4, 16} {
		for _, transports := range cases([][]string{{"xdp-native", "udp"}}, []string{"xdp-native", "xdp-native"},
			[]string{"udp", "xdp-native", "xdp-generic"}) {
			for _, limit := range cases([]int{0}, 2) {
				t.Run(fmt.Sprintf("%d/%s/limit %d", queues, strings.Join(transports, ","), limit), func(t *testing.T) {
					lab := newLab(t, netlab.Config{Ranks: len(transports), Queues: queues})
					j := start(t, lab, spec{program: "exchange", transports: transports,
						change: func(_ int, c *bootstrap.Config, _ *exec.Cmd) { c.Queues = limit }})
					j.finish()
					checkNothingLost(j)
				})
			}
		}
	}
}
