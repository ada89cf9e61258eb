package vmtests

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
)

// ground is what ranks stand on: a transport, and how many share a host.
type ground struct {
	name      string
	transport string
	perHost   int
}

// The grounds that tests of what programs see run on.
var (
	onXDP    = ground{"xdp-native", "xdp-native", 1}
	onUDP    = ground{"udp", "udp", 1}
	onMemory = ground{"memory", "xdp-native", netlab.MaxRanks} // all on one host
	onBoth   = ground{"pairs on hosts", "xdp-native", 2}
)

// grounds returns all of them, or with -short fewer that have everything in them.
func grounds() []ground { return testenv.Cases([]ground{onUDP, onBoth}, onXDP, onMemory) }

// job starts a job of that many ranks on g.
func (g ground) job(t *testing.T, ranks int, s spec) *job {
	t.Helper()
	s.transports = []string{g.transport}
	return start(t, labtest.New(t, netlab.Config{Ranks: ranks, RanksPerHost: g.perHost}), s)
}

// Every operation works over every transport, at MTUs that need one buffer a
// frame and several, between ranks of the same and of different transports.
func TestTransports(t *testing.T) {
	for _, transports := range testenv.Cases([][]string{{"xdp-native", "xdp-generic", "udp"}},
		[]string{"xdp-native", "xdp-native"}, []string{"xdp-generic", "xdp-generic"}, []string{"udp", "udp"}) {
		for _, mtu := range testenv.Cases([]int{9000}, 1500, 3498) {
			t.Run(fmt.Sprintf("%s/%d", strings.Join(transports, ","), mtu), func(t *testing.T) {
				lab := labtest.New(t, netlab.Config{Ranks: len(transports), MTU: mtu})
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
	lab := labtest.New(t, netlab.Config{Ranks: 3})
	start(t, lab, spec{program: "exchange", transports: []string{"xdp-native", "xdp-generic", "udp"}, v6: true}).finish()
}

func TestAnyNumberOfRanksExchanges(t *testing.T) {
	for _, g := range grounds() {
		for _, n := range testenv.Cases([]int{3}, 1, 7) {
			if g.perHost > 1 && n == 1 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", g.name, n), func(t *testing.T) {
				j := g.job(t, n, spec{program: "exchange"})
				j.finish()
				checkNothingLost(j)
			})
		}
	}
}

// Ranks of one host reach each other whatever device each has, by memory or by
// frames.
func TestMixedHost(t *testing.T) {
	type kind struct{ frames, v6 bool }
	for _, k := range testenv.Cases([]kind{{false, true}}, kind{false, false}, kind{true, true}, kind{true, false}) {
		t.Run(fmt.Sprintf("frames %v, IPv6 %v", k.frames, k.v6), func(t *testing.T) {
			lab := labtest.New(t, netlab.Config{Ranks: 5, RanksPerHost: 3})
			j := start(t, lab, spec{program: "exchange", transports: []string{"xdp-native", "udp", "xdp-generic"}, v6: k.v6,
				change: func(_ int, c *bootstrap.Config, _ *exec.Cmd) { c.Frames = k.frames }})
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
		for fault, n := range c.Faults {
			if n != 0 {
				j.t.Errorf("rank %d got %d frames with fault %v", r.n, n, fault)
			}
		}
		if c.BadAcks+c.BadAnswers+c.OutOfSpan+c.Refused != 0 {
			j.t.Errorf("rank %d found fault with its peers: %+v", r.n, c.Link)
		}
		if c.PeersFailed != 0 {
			j.t.Errorf("rank %d took %d peers for dead", r.n, c.PeersFailed)
		}
	}
}
