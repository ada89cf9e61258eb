package vmtests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/netlab"
)

// Every operation works over every transport, at MTUs that need one buffer a
// frame and several, between ranks of the same and of different transports.
func TestTransports(t *testing.T) {
	for _, transports := range [][]string{{"xdp-native", "xdp-native"}, {"xdp-generic", "xdp-generic"}, {"udp", "udp"},
		{"xdp-native", "xdp-generic", "udp"}} {
		for _, mtu := range []int{1500, 3498, 9000} {
			t.Run(fmt.Sprintf("%s/%d", strings.Join(transports, ","), mtu), func(t *testing.T) {
				lab := newLab(t, netlab.Config{Ranks: len(transports), MTU: mtu})
				j := start(t, lab, spec{program: "exchange", transports: transports})
				j.finish()
				for i, r := range j.ranks {
					if c := j.counters(r); c.Mode != transports[i] {
						t.Errorf("rank %d used %s, want %s", i, c.Mode, transports[i])
					}
				}
			})
		}
	}
}

func TestIPv6(t *testing.T) {
	lab := newLab(t, netlab.Config{Ranks: 3})
	start(t, lab, spec{program: "exchange", transports: []string{"xdp-native", "xdp-generic", "udp"}, v6: true}).finish()
}

func TestQueues(t *testing.T) {
	lab := newLab(t, netlab.Config{Ranks: 2, Queues: 2})
	start(t, lab, spec{program: "exchange", transports: []string{"xdp-native"}}).finish()
}

func TestRanks(t *testing.T) {
	for _, n := range []int{1, 3, 4, 7} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			lab := newLab(t, netlab.Config{Ranks: n})
			start(t, lab, spec{program: "exchange", transports: []string{"xdp-native"}}).finish()
		})
	}
}
