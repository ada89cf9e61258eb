package vmtests

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
)

// Ranks behind XDP hear their peers on whichever queue the peers' frames arrive,
// with nothing set, and with a limit on the queues too.
func TestXDPReceivesOnEveryQueue(t *testing.T) {
	for _, queues := range testenv.Cases([]int{4}, 16) {
		for _, transports := range testenv.Cases([][]string{{"xdp-native", "udp"}}, []string{"xdp-native", "xdp-native"},
			[]string{"udp", "xdp-native", "xdp-generic"}) {
			for _, limit := range testenv.Cases([]int{0}, 2) {
				t.Run(fmt.Sprintf("%d/%s/limit %d", queues, strings.Join(transports, ","), limit), func(t *testing.T) {
					lab := labtest.New(t, netlab.Config{Ranks: len(transports), Queues: queues})
					j := start(t, lab, spec{program: "exchange", transports: transports,
						change: func(_ int, c *bootstrap.Config, _ *exec.Cmd) { c.Queues = limit }})
					j.finish()
					checkNothingLost(j)
				})
			}
		}
	}
}

// A process that may lock little memory uses as many queues as fit, and the kernel's
// stack for the others.
func TestXDPFitsTheLimitOnLockedMemory(t *testing.T) {
	const limit = 8 << 20 // what systemd gives; four queues take more
	lab := labtest.New(t, netlab.Config{Ranks: 2, Queues: 4})
	j := start(t, lab, spec{program: "exchange", transports: []string{"xdp-native", "udp"},
		env: append(without(unix.CAP_IPC_LOCK), fmt.Sprintf("%s=%d", envMemLock, limit))})
	j.finish()
	if out := j.ranks[0].output(); !strings.Contains(out, "queues=4 used=2") {
		t.Errorf("rank 0 does not tell of the queues that it does not use: %s", out)
	}
}
