package vmtests

import (
	"fmt"
	"net/netip"
	"os/exec"
	"testing"

	"github.com/xdprma/xdprma/internal/lab/netlab"
	"github.com/xdprma/xdprma/internal/lab/netlab/labtest"
	"github.com/xdprma/xdprma/internal/lab/testenv"
	"github.com/xdprma/xdprma/internal/launch/bootstrap"
	"github.com/xdprma/xdprma/rma"
)

func init() {
	programs["asking"] = asking
	programs["contained"] = contained
}

// asking: rank 0 counts at rank 1, whose program executes that.
func asking(s *self) error {
	const times = 200
	win, err := rma.Allocate(s.ctx, s.world, 64, 8, nil)
	if err != nil {
		return err
	}
	if err := s.awaitReach(win, 1); err != nil {
		return err
	}
	if s.rank == 0 {
		before := s.node.Stats()
		for n := range int64(times) {
			if err := addTwo(s, win, 1, n); err != nil {
				return err
			}
		}
		after := s.node.Stats()
		executed := after.Executed - before.Executed
		if err := check(executed >= times/2 && after.AnswersLost == 0, "of %d requests the program executed %d, and its answers got lost %d times",
			times, executed, after.AnswersLost); err != nil {
			return err
		}
	}
	return win.Free(s.ctx)
}

// The program's answers reach a UDP socket, whose kernel leaves checksums partial: whether
// they stay so on the way, a port of the bridge completes them, or native XDP forgets that
// they are.
func TestAnswersReachUDPSockets(t *testing.T) {
	for _, test := range []struct {
		transport string
		sums, v6  bool
	}{
		{"xdp-generic", true, false}, {"xdp-generic", false, false}, {"xdp-native", true, false}, {"xdp-native", false, false},
		{"xdp-generic", true, true}, {"xdp-generic", false, true}, {"xdp-native", true, true}, {"xdp-native", false, true},
		{"shared", true, false}, {"shared", false, false}, {"shared", true, true}, {"shared", false, true},
	} {
		t.Run(fmt.Sprintf("%s, sums at the port %v, IPv6 %v", test.transport, test.sums, test.v6), func(t *testing.T) {
			lab := acceptAnswers(t, labtest.New(t, netlab.Config{Ranks: 3}), test.transport)
			if test.sums {
				sumAtPort(t, lab, 0)
			}
			j := start(t, lab, spec{program: "asking", ranks: 2, transports: []string{"udp", test.transport}, v6: test.v6})
			j.finish()
			checkNothingLost(j)
		})
	}
}

// contained: the programs of all ranks take locks and count, and then the ranks do
// everything else.
func contained(s *self) error {
	return all(func() error { return exclusive(s) }, func() error { return exchange(s) })
}

// In generic mode the program's answers need no help at the far end of a veth: the ports of
// a bridge of containers have no program.
func TestContainersNeedNoProgramAtTheBridge(t *testing.T) {
	for _, sums := range testenv.Cases([]bool{true}, false) {
		t.Run(fmt.Sprintf("sums at a port %v", sums), func(t *testing.T) {
			lab := labtest.New(t, netlab.Config{Ranks: 3})
			if sums {
				sumAtPort(t, lab, 0)
			}
			j := start(t, lab, spec{program: "contained", transports: []string{"xdp-generic"}})
			j.finish()
			checkNothingLost(j)
			for _, r := range j.ranks {
				r.rewind()
				if c := j.counters(r); c.Mode != "xdp-generic" || c.Executed == 0 || c.AnswersLost != 0 {
					t.Errorf("rank %d used %s, programs executed %d of its requests, and answers got lost %d times",
						r.n, c.Mode, c.Executed, c.AnswersLost)
				}
			}
		})
	}
}

// Ranks on VLAN interfaces above veths, and one with a socket there, are answered by programs as
// others are.
func TestAnswersOnVLANInterfaces(t *testing.T) {
	testenv.NeedsRoot(t)
	testenv.NeedsFeature(t, testenv.VLANs)
	for _, v6 := range testenv.Cases([]bool{true}, false) {
		t.Run(fmt.Sprintf("IPv6 %v", v6), func(t *testing.T) {
			lab := labtest.New(t, netlab.Config{Ranks: 3})
			addresses := make([]netip.Addr, lab.Ranks())
			for rank := range addresses {
				addresses[rank] = netip.AddrFrom4([4]byte{10, 78, 0, byte(rank + 1)})
				if v6 {
					addresses[rank] = netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x78, 15: byte(rank + 1)})
				}
				commands := fmt.Sprintf("ip link add link %s name tagged type vlan id 7; ip link set dev tagged up; ip address add %v/%d dev tagged nodad",
					lab.Interface(rank), addresses[rank], addresses[rank].BitLen()*3/4)
				if out, err := lab.Command(rank, "sh", "-e", "-c", commands).CombinedOutput(); err != nil {
					t.Fatalf("%s: %v: %s", commands, err, out)
				}
			}
			for _, transports := range [][]string{{"xdp-generic"}, {"udp", "xdp-generic", "udp"}, {"shared"}, {"udp", "shared", "udp"}} {
				j := start(t, lab, spec{program: "asking", transports: transports, change: func(rank int, p *bootstrap.Config, _ *exec.Cmd) {
					p.Interface, p.Address = "tagged", addresses[rank]
				}})
				j.finish()
				checkNothingLost(j)
			}
		})
	}
}

func sumAtPort(t *testing.T, lab *netlab.Lab, rank int) {
	t.Helper()
	if err := lab.SumAtPort(rank); err != nil {
		t.Fatal(err)
	}
}
