package vmtests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/netlab"
	"github.com/xdprma/xdprma/internal/wire"
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
				checkNothingLost(j)
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
			j := start(t, lab, spec{program: "exchange", transports: []string{"xdp-native"}})
			j.finish()
			checkNothingLost(j)
		})
	}
}

// checkNothingLost holds the ranks to the promise that peers that keep to their
// credits never overrun a rank's receive ring, and that nothing is malformed.
func checkNothingLost(j *job) {
	j.t.Helper()
	for _, r := range j.ranks {
		r.rewind()
		c := j.counters(r)
		if d := c.Device; d.RxDropped != 0 || d.RxMalformed != 0 || d.TxErrors != 0 {
			j.t.Errorf("rank %d lost frames: %+v", r.n, d)
		}
		for fault, n := range c.Engine.Faults {
			if n != 0 {
				j.t.Errorf("rank %d got %d frames with fault %v", r.n, n, wire.Fault(fault))
			}
		}
		if c.Engine.BadAcks+c.Engine.BadAnswers+c.Engine.OutOfSpan+c.Engine.Refused != 0 {
			j.t.Errorf("rank %d found fault with its peers: %+v", r.n, c.Engine)
		}
		if c.Engine.PeersFailed != 0 {
			j.t.Errorf("rank %d took %d peers for dead", r.n, c.Engine.PeersFailed)
		}
	}
}
